"""A simulated client's batches outside of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from lightning_fedhpo import seeding
from lightning_fedhpo.client.batch_count import batches_of
from lightning_fedhpo.data.federation import FederatedData


class ClientBatches:
    """The batches of one client, to give to a Trainer as a loader.

    The training examples come anew in every pass, in the order in which a run with that seed has them in that round.

    Args:
        data: The federation.
        client: The client's number.
        split: ``"train"``, ``"val"`` or ``"test"``; only training examples are shuffled.
        batch_size: By default the federation's own.
        seed: The run's.
        round: The number of rounds behind the run.

    Example:
        >>> from lightning_fedhpo.testing import toy_data
        >>> batches = ClientBatches(toy_data(), client=0, batch_size=4)
        >>> len(batches) == len(list(batches))
        True
    """

    def __init__(
        self,
        data: FederatedData,
        client: int,
        split: str = "train",
        batch_size: int | None = None,
        seed: int = 0,
        round: int = 0,  # noqa: A002 - the design's word
    ) -> None:
        trains = split == "train"
        self._examples = data.examples(client, split)
        self._size = batch_size or (data.batch_size if trains else data.eval_batch_size)
        self._count = batches_of(len(self._examples), self._size, trains and data.drop_last, 1.0)
        draw = seeding.key(seed, seeding.BATCHES, round, 0, client)
        self._generator = torch.Generator().manual_seed(draw) if trains else None

    @property
    def examples(self) -> int:
        """The number of examples."""
        return len(self._examples)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        # Drawn when the first batch is asked for: Lightning calls `iter` also to see whether it can.
        length, generator = len(self._examples), self._generator
        order = torch.arange(length) if generator is None else torch.randperm(length, generator=generator)
        yield from self._examples.batches(order, self._size, self._count)
