"""What goes round by a board: everybody's bytes, and tensors of every kind as everybody's sum or maximum."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch
from torch import Tensor, distributed

from lightning_fedhpo.processes import board, exchange
from lightning_fedhpo.processes.board import Board
from tests.processes.cases import mixed
from tests.processes.test_board import at_once, boards

pytestmark = pytest.mark.skipif(not board.able(), reason="no memory that processes can share")


def went_round(found: list[Board], times: int = 1) -> list[tuple[list[bytes], list[Tensor], list[Tensor]]]:
    """Let every process say its number and give its tensors."""

    def act(rank: int, one: Board) -> Any:
        for _ in range(times):
            summed, largest = mixed(rank)
            reductions = [
                *exchange._reductions(summed, distributed.ReduceOp.SUM),
                *exchange._reductions(largest, distributed.ReduceOp.MAX),
            ]
            own = bytes([rank]) * 5
            assert one.takes(len(own) + sum(reduction.nbytes for reduction in reductions))
            said = exchange._by_board(one, own, reductions)
        return said, summed, largest

    return at_once(found, act)


@pytest.mark.parametrize("count", [2, 3])
def test_everybody_has_the_sums_and_the_largest_of_all(count: int) -> None:
    everyone = [mixed(rank) for rank in range(count)]
    for said, summed, largest in went_round(boards(count), times=3):
        assert said == [bytes([rank]) * 5 for rank in range(count)]
        for tensor, *theirs in zip(summed, *(one for one, _ in everyone), strict=True):
            # Summed in single precision, rounded once: small whole numbers come out exactly in all of them.
            assert torch.equal(tensor, sum(theirs))
        for tensor, *theirs in zip(largest, *(one for _, one in everyone), strict=True):
            assert torch.equal(tensor, reduce(torch.maximum, theirs))


def test_all_come_to_the_same_bits() -> None:
    def act(rank: int, one: Board) -> Tensor:
        tensor = torch.randn(1000, generator=torch.Generator().manual_seed(rank))
        reductions = list(exchange._reductions([tensor], distributed.ReduceOp.SUM))
        assert one.takes(reductions[0].nbytes + 1)
        exchange._by_board(one, b"x", reductions)
        return tensor

    first, *others = at_once(boards(3), act)
    assert all(torch.equal(first, other) for other in others)
