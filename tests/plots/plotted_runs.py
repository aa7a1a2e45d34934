"""Runs that the tests of figures look at, each computed once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from torch.utils.data import TensorDataset

from lightning_fedhpo import Choice, FedEx, FedPop, FedTune, Float, Int, RandomSearch, SearchSpace, SuccessiveHalving
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.run_data import RunData
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
def halved_again() -> Result:
    """The same with another seed, two arms and four rounds."""
    return _result(4, RandomSearch(SPACE, budget=8, max_rounds=4), FedEx(SPACE, configs=5, epsilon=0.5), seed=1)


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


def large() -> RunData:
    """27 arms, 800 rounds and 27 configurations, without an elimination, and ten jobs a round."""
    arms, rounds, configs = 27, 800, 27
    draw_from = np.random.default_rng(0)
    size = arms * rounds
    history = {
        "round": np.repeat(np.arange(rounds), arms).tolist(),
        "arm": np.tile(np.arange(arms), rounds).tolist(),
        "score": draw_from.random(size).tolist(),
        "best": [False] * size,
        "ledger/rounds": np.repeat(np.arange(1, rounds + 1) * arms, arms).tolist(),
        "server/lr": np.tile(draw_from.random(arms), rounds).tolist(),
        "client/lr": draw_from.random(size).tolist(),
        "fedex/entropy": draw_from.random(size).tolist(),
        "fedex/mle": draw_from.integers(configs, size=size).tolist(),
        **{f"fedex/prob/{config}": draw_from.random(size).tolist() for config in range(configs)},
    }
    jobs = {
        "round": np.repeat(history["round"], 10).tolist(),
        "arm": np.repeat(history["arm"], 10).tolist(),
        "client": draw_from.integers(3000, size=10 * size).tolist(),
        **{name: [10] * 10 * size for name in ("train_examples", "val_examples")},
        **{name: draw_from.random(10 * size).tolist() for name in ("score_before", "score_after")},
        "dropped": [False] * 10 * size,
    }
    owned = [(arm, config) for arm in range(arms) for config in range(configs)]
    return RunData(
        Table(history),
        Table(jobs),
        Table({"arm": [a for a, _ in owned], "config": [c for _, c in owned], "lr": [c / configs for _, c in owned]}),
        [
            {"index": a, "client": {}, "server": {}, "rounds": rounds, "eliminated_at": None, "ancestors": []}
            for a in range(arms)
        ],
        ledger=dict.fromkeys(("rounds", "client_updates", "local_steps", "examples", "bytes_up", "bytes_down"), 1),
        trajectory=[{"round": n, "arm": 0, "server": {}, "client": {"lr": n / rounds}} for n in range(rounds)],
    )


def _result(rounds: int, *callbacks: Any, **options: Any) -> Result:
    return fit(rounds, *callbacks, **options)[0].result
