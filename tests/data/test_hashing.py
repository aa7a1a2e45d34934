"""A client's split is its own: a function of the seed, its name and its number of examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo.data import FederatedData, Natural
from lightning_fedhpo.data.hashing import client_keys, shuffled

MASK = 2**64 - 1


def splitmix64(state: int) -> int:
    """Do what the published C code does, on Python's integers."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_a_clients_order_is_that_of_its_own_stream() -> None:
    owners = np.random.default_rng(0).integers(-1, 5, size=200)
    keys = client_keys(np.arange(5), 7)
    order, offsets = shuffled(owners, keys)
    for client in range(5):
        own = [i for i, owner in enumerate(owners) if owner == client]
        draws = [splitmix64((int(keys[client]) + rank * 0x9E3779B97F4A7C15) & MASK) for rank in range(len(own))]
        expected = [own[rank] for rank in np.argsort(np.array(draws, dtype=np.uint64))]
        assert order[offsets[client] : offsets[client + 1]].tolist() == expected


@pytest.mark.parametrize(
    ("names", "same"),
    [
        (np.array([3, 0, 7]), np.array([3, 0, 7], dtype=np.uint8)),
        (np.array(["ann", "é", ""]), np.array(["ann", "é", "", "a much longer name"])),
        (np.array(["ann", "bob"]), np.array(["ann", "bob"], dtype=">U9")),
        (np.array([0.5, 1.5]), np.array(["0.5", "1.5"], dtype=object)),
    ],
)
def test_keys_depend_on_the_name_and_not_on_how_it_is_stored(names: Any, same: Any) -> None:
    keys = client_keys(names, 1)
    assert keys.tolist() == client_keys(same, 1)[: len(names)].tolist()
    assert len({*keys.tolist(), *client_keys(names, 2).tolist()}) == 2 * len(names)


WORDS = np.array(["hans", "ida", "jo", "kai", "lea", "max", "nora", "otto"])
OWNERS = np.random.default_rng(0).permutation(np.arange(240) % 8)


def contents(owners: Any, order: Any, seed: int = 3) -> dict[Any, list[list[int]]]:
    """Return the examples of each client by name, split by split, an example being called by its value."""
    data = FederatedData([torch.as_tensor(order)], Natural(owners), seed=seed)
    assert data.names is not None
    return {
        name.item(): [order[data.indices(client, split)].tolist() for split in ("train", "val", "test")]
        for client, name in enumerate(data.names)
    }


@pytest.mark.parametrize(
    ("names", "new"),
    [  # newcomers come before, after and between the others in the order of names, which is that of clients' numbers
        (WORDS, ["a"] * 30 + ["zoe, who has the longest name"] * 30 + [f"new {i}" for i in range(300)]),
        (np.arange(8) * 10 + 5, [0] * 30 + [10**12] * 30 + [1000 + i for i in range(300)]),
    ],
    ids=["words", "numbers"],
)
def test_other_clients_do_not_move_a_clients_split(names: Any, new: list[Any]) -> None:
    before = contents(names[OWNERS], np.arange(240))
    owners, order = np.concatenate([names[OWNERS], new]), np.arange(240 + len(new))
    # The newcomers' examples lie among the others', which keep their order.
    places = np.sort(np.random.default_rng(1).permutation(len(owners))[:240])
    mixed = np.full(len(owners), -1)
    mixed[places] = np.arange(240)
    mixed[mixed < 0] = np.arange(240, len(owners))
    after = contents(owners[mixed], order[mixed])
    assert len(after) == 8 + len(set(new))
    assert {name: after[name] for name in before} == before
    assert contents(names[OWNERS], np.arange(240), seed=4) != before
