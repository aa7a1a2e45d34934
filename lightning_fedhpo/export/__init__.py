"""What a result becomes elsewhere: a Flower app that trains with the values that were found."""

from lightning_fedhpo.export.client_batches import ClientBatches
from lightning_fedhpo.export.flower_app import write_flower_app

__all__ = ["ClientBatches", "write_flower_app"]
