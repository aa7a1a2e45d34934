"""Every public constructor refuses what cannot be meant, by its argument's name and with what came."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import lightning_fedhpo
from lightning_fedhpo import Choice, Devices, Dirichlet, FederatedLoop, Float, Iid, SearchSpace, data, models
from lightning_fedhpo.algorithms import FedAvg, FedOpt
from lightning_fedhpo.arguments import number, shown
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.searches import Hyperband, RandomSearch, SuccessiveHalving
from lightning_fedhpo.testing import ToyModule, toy_tensors
from lightning_fedhpo.tuners import FedEx, Fixed
from tests.fits import fit

SPACE = SearchSpace(client={"lr": Choice([0.1, 1.0])})
NEEDED: dict[str, Any] = {
    "space": SPACE,
    "command": "python",
    "budget": 20,
    "max_rounds": 6,
    "clients": 4,
    "alpha": 1.0,
    "low": 1,
    "high": 2,
}
NEEDED |= {"options": [1, 2], "by": [0, 1], "net": nn.Linear(2, 2)}
NEEDED |= {"dataset": toy_tensors(100), "partition": Iid(4)}
NO_ARGUMENTS = {"Algorithm", "Participation", "Search", "Tuner", "ClientsBySize", "ClientsInTurn", "UniformClients"}
PUBLIC = [getattr(lightning_fedhpo, name) for name in lightning_fedhpo.__all__ if name not in NO_ARGUMENTS]
PUBLIC += [getattr(models, name) for name in models.__all__]
PUBLIC += [data.synthetic_classification, data.synthetic_images, data.synthetic_alpha_beta, data.femnist, Vectorized]

WRONG: dict[type, list[Any]] = {
    bool: ["no", 1, 0.5],
    int: ["3", 1.5, True, math.nan],
    float: ["3", True, math.nan, math.inf, -math.inf, np.float64("nan")],
    str: [b"text", 1.5],
}


@pytest.mark.parametrize("made", PUBLIC, ids=lambda made: made.__name__)
def test_a_wrong_argument_is_named(made: Callable[..., Any], tmp_path: Path) -> None:
    parameters = dict(inspect.signature(made).parameters)
    parameters.pop("server_data", None)  # anything that has examples, which shows when the run begins
    needed = {name: NEEDED[name] for name in parameters if name in NEEDED}
    needed |= {"low": 1.0, "high": 2.0} if made is Float else {}
    needed |= {"width": 8, "groups": 2} if made is models.ResNet else {}
    if made in (FederatedLoop, Fixed):
        needed.pop("clients")  # who takes part or their values, not how many there are
    if "path" in parameters:
        needed["path"] = str(tmp_path / "small.npz")
        np.savez(needed["path"], x=np.zeros((6, 28, 28), "uint8"), y=np.arange(6), writer=[0, 0, 0, 1, 1, 1])
    tried = 0
    for name, parameter in parameters.items():
        usual = needed.get(name, parameter.default)
        for value in [object(), *WRONG.get(type(usual), [])]:
            began = time.monotonic()
            with pytest.raises((TypeError, ValueError)) as caught:
                made(**{**needed, name: value})
            assert time.monotonic() - began < 5
            assert name in str(caught.value) or "bounds" in str(caught.value)
            assert "got" in str(caught.value) and len(str(caught.value)) < 400
            assert str(caught.traceback[-1].path).startswith(lightning_fedhpo.__path__[0]), "Python's own error"
            tried += 1
    assert tried >= len(parameters) > 0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: FederatedLoop(verify="no"), TypeError, "`verify` must be true or false, got 'no'"),
        (lambda: FederatedLoop(mode="mean"), ValueError, "`mode` must be one of 'min', 'max', got 'mean'"),
        (lambda: FederatedLoop(monitor=None, target="global"), ValueError, "monitor=None"),
        (lambda: FederatedLoop(monitor=5), TypeError, "`monitor` must be a text or None, got 5"),
        (lambda: FederatedLoop(evaluate_at="often"), TypeError, "a sequence of whole numbers or None, got 'often'"),
        (lambda: Fixed(client=[1]), TypeError, r"`client` must be a mapping, a text, .* or None, got \[1\]"),
        (lambda: FederatedLoop(evaluate_at=[]), ValueError, "`evaluate_at` must have a number of rounds, got an empty"),
        (lambda: FedEx(configs=3, cutoff=1.5), ValueError, "`cutoff` must be below 1.10, the entropy of 3 .*, got 1.5"),
        (lambda: FederatedLoop(evaluate_at=[3, 0]), ValueError, "`evaluate_at` must be at least 1, got 0"),
        (lambda: SuccessiveHalving(SPACE, eta=10, eliminations=6), ValueError, "at most 100000 arms, got 1000000 with"),
        (lambda: Hyperband(SPACE, max_rounds=10**6), ValueError, "at most 100000 arms, got .* and max_rounds=1000000"),
        (lambda: FedAvg(local=5), TypeError, "`local` must be a text or a sequence of texts, got 5"),
        (lambda: Fixed(client={"lr": math.nan}), ValueError, "the client's `lr` must be finite, got nan"),
        (lambda: Devices(spread=1e6), ValueError, r"`spread` must be in \[0, 10\], got 1000000.0: it is of the log"),
        (lambda: Dirichlet(4, 5e-324), ValueError, r"`alpha` must be in \[1e-09, 1000000000\], got 5e-324"),
        (lambda: data.FederatedData("abcdefgh", Iid(2)), TypeError, "`dataset` must be a map-style .*got str"),
        (lambda: data.FederatedData(toy_tensors(9), pd.DataFrame()), TypeError, "`partition` says who owns which"),
        (lambda: FederatedLoop(clients=0), TypeError, "`clients` must be a Participation"),
        (lambda: FederatedLoop(client_memory=1e308), ValueError, "`client_memory` must be in"),
        (lambda: data.Natural(5), TypeError, "`by` must be a text, a function, a sequence, a Tensor, a ndarray or"),
        (lambda: data.FederatedData(toy_tensors(9), Iid(2), collate_fn="own"), TypeError, "`collate_fn` must be a f"),
    ],
)
def test_what_came_is_answered_with_the_rule(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_numpy_s_numbers_become_plain_ones() -> None:
    search = RandomSearch(SPACE, np.int64(20), np.int32(6))
    tuner = FedEx(SPACE, configs=np.int64(3), epsilon=np.float32(0.5), cutoff=np.float64(0.0))
    loop = FederatedLoop(FedAvg(lr=np.float64(0.5)), cohort=np.int64(2), seed=np.int64(1), epochs=np.int8(1))
    held = [search.budget, search.max_rounds, tuner.epsilon, tuner.cutoff, loop.cohort, loop.seed, loop.epochs]
    held += [lightning_fedhpo.AvailableClients(np.float32(0.5)).probability]
    assert {type(value) for value in [*held, *loop.algorithm.server.values()]} == {int, float}
    FedOpt(beta1=0).server_optimizer([torch.zeros(1)], FedOpt(beta1=0).server)  # torch takes no 0 for 0.0
    models.LSTM(embedding=np.int64(3), hidden=np.int64(2))


def test_a_checkpoint_s_hyperparameters_are_plain(tmp_path: Path) -> None:
    class Module(ToyModule):
        def __init__(self, classes: int) -> None:
            super().__init__()
            self.save_hyperparameters()

    _, trainer, _ = fit(1, module=Module(np.arange(3).max() + 1))
    trainer.save_checkpoint(tmp_path / "it.ckpt")
    assert torch.load(tmp_path / "it.ckpt", weights_only=True)["hyper_parameters"] == {"classes": 3}


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "rule"),
    [
        ({"low": 0, "high": 1}, [0, 0.5, 1], [-0.1, 1.1, math.nan, math.inf], "in [0, 1]"),
        ({"low": 0, "below": 1}, [0, 0.9], [-0.1, 1], "in [0, 1)"),
        ({"above": 0, "high": 1}, [1e-300, 1], [0, 2], "in (0, 1]"),
        ({"above": 0}, [0.1, 10**9], [0, -1], "above 0"),
        ({"low": 0}, [0, 7], [-1], "at least 0"),
        ({}, [-1, 1e308], [math.nan, -math.inf], "finite"),
    ],
)
def test_numbers_in_bounds(bounds: dict[str, float], inside: list[float], outside: list[float], rule: str) -> None:
    for value in inside:
        assert number("x", value, **bounds) == value
    for value in outside:
        with pytest.raises(ValueError) as caught:
            number("x", value, why="so it is", **bounds)
        assert str(caught.value) == f"`x` must be {rule}, got {shown(value)}: so it is."
