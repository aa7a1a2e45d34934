"""A million clients are flat arrays: seconds to build and hundreds of megabytes."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Partition, Quantity, Shards


def check(partition: Partition, clients: int, examples: int, seconds: float, megabytes: float) -> None:
    tensors = torch.zeros(examples, dtype=torch.uint8), torch.arange(examples, dtype=torch.uint8) % 10
    tracemalloc.start()  # numpy reports its arrays to it
    try:
        start = time.process_time()
        data = FederatedData(tensors, partition)
        taken = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
    assert data.clients == clients
    assert sum(int(data.sizes(split).sum()) for split in ("train", "val", "test")) == examples
    assert len(data.examples(clients - 1)) == data.sizes("train")[-1]
    assert taken < seconds
    assert peak < megabytes


def owners(clients: int, examples: int, step: int = 1) -> Natural:
    return Natural(np.random.default_rng(0).permutation(np.arange(examples) % clients) * step)


@pytest.mark.parametrize(
    ("make", "clients", "megabytes"),
    [
        (lambda: owners(100_000, 10**6, step=1000), 100_000, 60),  # ids with gaps
        (lambda: Quantity(100_000), 100_000, 60),
        (lambda: Dirichlet(10_000, 0.5), 10_000, 100),
        (lambda: Shards(10_000, 2), 10_000, 100),
    ],
    ids=["natural", "quantity", "dirichlet", "shards"],
)
def test_a_million_examples(make: Callable[[], Partition], clients: int, megabytes: float) -> None:
    check(make(), clients, 10**6, seconds=5, megabytes=megabytes)


@pytest.mark.parametrize("make", [lambda: Iid(10**6), lambda: owners(10**6, 3 * 10**6)], ids=["iid", "natural"])
def test_a_million_clients(make: Callable[[], Partition]) -> None:
    check(make(), 10**6, 3 * 10**6, seconds=4.5, megabytes=180)
