"""A million clients are flat arrays: seconds to build and hundreds of megabytes."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural, Partition, Quantity, Shards


def natural(clients: int, examples: int) -> Partition:
    return Natural(np.random.default_rng(0).permutation(np.arange(examples, dtype=np.int32) % clients))


def sparse(clients: int, examples: int) -> Partition:
    return Natural(np.random.default_rng(0).permutation(np.arange(examples) % clients) * 1000)


MAKERS: list[Callable[[int, int], Partition]] = [
    lambda clients, examples: Iid(clients),
    natural,
    sparse,
    lambda clients, examples: Quantity(clients),
]
IDS = ["iid", "natural", "natural, sparse ids", "quantity"]


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


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_a_hundred_thousand_clients(make: Callable[[int, int], Partition]) -> None:
    check(make(100_000, 1_000_000), 100_000, 1_000_000, seconds=5, megabytes=60)


@pytest.mark.parametrize("partition", [Dirichlet(10_000, 0.5), Shards(10_000, 2)], ids=repr)
def test_ten_thousand_clients_by_label(partition: Partition) -> None:
    check(partition, 10_000, 1_000_000, seconds=5, megabytes=100)


@pytest.mark.parametrize("make", MAKERS[:2], ids=IDS[:2])
def test_a_million_clients(make: Callable[[int, int], Partition]) -> None:
    check(make(1_000_000, 10_000_000), 1_000_000, 10_000_000, seconds=15, megabytes=600)
