"""What runs the jobs of a round, and how the user says which."""

from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.settings import Auto, Sequential, Vectorized
from lightning_fedhpo.executors.vectorized.executor import VectorizedExecutor

__all__ = ["Auto", "Executor", "Sequential", "SequentialExecutor", "Vectorized", "VectorizedExecutor"]
