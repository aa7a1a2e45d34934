"""Every exported algorithm, tuner and search keeps the contracts; and a contract that is broken is noticed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightning_fedhpo import algorithms, executors, searches, tuners
from lightning_fedhpo.algorithms import Algorithm, FedAvg, FedOpt
from lightning_fedhpo.executors import SequentialExecutor, Vectorized
from lightning_fedhpo.searches import Search
from lightning_fedhpo.testing import (
    check_executor,
    check_hyperparameters,
    check_identity,
    check_nan_survives,
    check_resume,
    check_same_seed,
    check_suggestions,
    toy_instance,
)
from lightning_fedhpo.tuners import Fixed, Tuner
from lightning_fedhpo.types import Suggestion
from tests.algorithms.stateful import Controls


def _exported(package: Any, base: type) -> list[Any]:
    """Return the classes that a package exports, its base apart: a new one is here by being exported."""
    exported = [getattr(package, name) for name in package.__all__]
    return [kind for kind in exported if issubclass(kind, base) and kind is not base]


def _search(kind: Any) -> Search:
    try:
        return toy_instance(kind)
    except ModuleNotFoundError as error:  # of an extra
        pytest.skip(str(error))


ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    **{kind.__name__: kind for kind in _exported(algorithms, Algorithm)},
    **{f"FedOpt-{name}": lambda name=name: FedOpt(name) for name in ("sgd", "adagrad", "yogi")},
    "with-state": Controls,
    "FedAvg-personal": lambda: FedAvg(momentum=0.5, local="net.3.*"),
}
TUNERS = {kind.__name__: (lambda kind=kind: toy_instance(kind)) for kind in _exported(tuners, Tuner)}
SEARCHES = {kind.__name__: (lambda kind=kind: _search(kind)) for kind in _exported(searches, Search)}
ALL = {**ALGORITHMS, **TUNERS, "Fixed-set": lambda: Fixed({"lr": 0.3, "epochs": 2}, {"momentum": 0.5}), **SEARCHES}
DRAWING = {name: make for name, make in {**TUNERS, **SEARCHES}.items() if name not in ("Fixed", "Replay")}


EXECUTORS = {
    **{kind.__name__: kind() for kind in _exported(executors, object) if not issubclass(kind, SequentialExecutor)},
    "Vectorized": Vectorized(compile=False),
}
"""The exported settings; compiling is tested in tests/executors."""
del EXECUTORS["Auto"]  # one of the others, as tests/executors/test_choice.py shows


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("check", [check_same_seed, check_resume, check_nan_survives, check_executor])
def test_all_keep(check: Callable[..., None], name: str, executor: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "executor: .* never leave the client")
        check(ALL[name], executor=EXECUTORS[executor])


@pytest.mark.parametrize("name", ALL)
def test_identities(name: str) -> None:
    check_identity(ALL[name])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", DRAWING)
def test_suggestions_stay_in_the_space(name: str, executor: str) -> None:
    check_suggestions(DRAWING[name], executor=EXECUTORS[executor])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_hyperparameters_take_effect(name: str, executor: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "executor: .* never leave the client")
        check_hyperparameters(ALGORITHMS[name], executor=EXECUTORS[executor])


class Forgetful(Tuner):
    """Counts its rounds, and saves nothing of it."""

    client_names = ("lr",)

    def __init__(self) -> None:
        self.count = 0

    def suggest(self, arm: Any, cohort: Any, context: Any) -> list[Suggestion]:
        self.count += 1
        return [Suggestion({"lr": 0.1 / self.count})] * len(cohort)

    def best(self, arm: Any) -> dict[str, float]:
        return {"lr": 0.1}


class Global(Forgetful):
    """Draws from torch's own generator."""

    def suggest(self, arm: Any, cohort: Any, context: Any) -> list[Suggestion]:
        return [Suggestion({"lr": float(torch.rand(()))})] * len(cohort)


class Outside(Forgetful):
    """Goes beyond the space."""

    def suggest(self, arm: Any, cohort: Any, context: Any) -> list[Suggestion]:
        return [Suggestion({"lr": 0.6})] * len(cohort)


class Spreads(FedAvg):
    """Aggregates to nan where the loss was."""

    def aggregate(self, arm: Any) -> None:
        if arm.pseudo_gradient() is None:
            for tensor in arm.weights:
                tensor.data.fill_(float("nan"))
        super().aggregate(arm)


class Idle(FedAvg):
    """Declares what it does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.server["warmth"] = 1.0


class Unsure(FedAvg):
    """Is never the same."""

    count = 0

    def identity(self) -> dict[str, Any]:
        type(self).count += 1
        return {**super().identity(), "count": self.count}


@pytest.mark.parametrize(
    ("check", "make", "complaint"),
    [
        (check_resume, Forgetful, "the run differs in"),
        (check_same_seed, Global, "the same seed gave two runs"),
        (check_suggestions, Outside, "outside of the space"),
        (check_nan_survives, Spreads, "the model changed"),
        (check_hyperparameters, Idle, "server 'warmth' has no effect"),
        (check_identity, Unsure, "taken for different ones"),
    ],
)
def test_a_broken_contract_is_noticed(check: Any, make: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(make)
