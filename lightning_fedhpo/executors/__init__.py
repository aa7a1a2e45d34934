"""What runs the jobs of a round."""

from lightning_fedhpo.executors.sequential import SequentialExecutor

__all__ = ["SequentialExecutor"]
