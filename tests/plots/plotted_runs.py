"""Runs that the tests of figures look at, each computed once."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch.utils.data import TensorDataset

from lightning_fedhpo import Choice, FedEx, FedPop, FedTune, Float, Int, RandomSearch, SearchSpace, SuccessiveHalving
from lightning_fedhpo.run.result import Result
from lightning_fedhpo.testing import toy_data, toy_tensors
from tests.fits import fit

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 1.0, log=True), "epochs": Int(1, 3)}, server={"lr": Float(0.3, 3.0, log=True)}
)


@cache
def halved() -> Result:
    """FedEx with five configurations in nine arms, of which three go on after round 4 and one after round 8."""
    search = SuccessiveHalving(SPACE, eta=3, eliminations=2, budget=52, max_rounds=10)
    return _result(10, search, FedEx(SPACE, configs=5, epsilon=0.5), score_before=True)


@cache
def evolved() -> Result:
    """FedPop with six arms, of which two are replaced every second round; the best arm is a copy of a copy."""
    return _result(7, RandomSearch(SPACE, budget=42, max_rounds=7), FedPop(SPACE, interval=2), seed=3)


@cache
def chosen() -> Result:
    """FedTune with six clients and four candidates."""
    space = SearchSpace(client={"lr": Choice([0.3, 0.01]), "weight_decay": Choice([0.0, 0.1])})
    held_out = TensorDataset(*toy_tensors(30, seed=1))
    options = {"cohort": 6, "target": "server", "server_data": held_out}
    return _result(5, FedTune(space, lr=50.0), data=toy_data(clients=6), **options)


def _result(rounds: int, *callbacks: Any, **options: Any) -> Result:
    return fit(rounds, *callbacks, **options)[0].result
