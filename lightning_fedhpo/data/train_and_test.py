"""A data set that comes in two parts, training and test, as a data module."""

from __future__ import annotations

from typing import Any

from lightning import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from lightning_fedhpo.data.federation import BATCH_SIZE


class TrainAndTest(LightningDataModule):
    """Keep a test part apart: a federation of this cuts validation, but no test, from the training part.

    Args:
        train: The training part.
        test: The test part, if there is one.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from lightning_fedhpo.data import FederatedData, Iid
        >>> parts = TrainAndTest(TensorDataset(torch.zeros(90, 3)), TensorDataset(torch.ones(10, 3)))
        >>> data = FederatedData(parts, Iid(clients=5))
        >>> data.sizes("train").tolist(), data.sizes("val").tolist(), data.sizes("test").tolist()
        ([16, 16, 16, 16, 16], [2, 2, 2, 2, 2], [2, 2, 2, 2, 2])
    """

    def __init__(self, train: Dataset[Any], test: Dataset[Any] | None = None) -> None:
        super().__init__()
        self._train, self._test = train, test

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training part."""
        return DataLoader(self._train, BATCH_SIZE)

    def test_dataloader(self) -> DataLoader[Any] | list[DataLoader[Any]]:
        """Return the test part; an empty list if there is none."""
        return [] if self._test is None else DataLoader(self._test, BATCH_SIZE)
