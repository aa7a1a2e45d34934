"""Every exported algorithm, tuner and search keeps the contracts; and a contract that is broken is noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from lightning_fedhpo import algorithms, searches, testing, tuners
from lightning_fedhpo.algorithms import MAML, Algorithm, FedAvg, FedHyper, FedOpt, Scaffold
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.searches import RandomSearch, Search
from lightning_fedhpo.space import Float, SearchSpace
from lightning_fedhpo.testing.contracts import toy_space
from lightning_fedhpo.tuners import FedEx, Fixed, Tuner
from lightning_fedhpo.types import Suggestion


def _exported(package: Any, base: type) -> list[Any]:
    """Return the classes that a package exports, its base apart: a new one is here by being exported."""
    exported = [getattr(package, name) for name in package.__all__]
    return [kind for kind in exported if issubclass(kind, base) and kind is not base]


def _search(kind: Any) -> Search:
    try:
        return testing.toy_instance(kind)
    except ModuleNotFoundError as error:  # of an extra
        pytest.skip(str(error))


ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    **{kind.__name__: kind for kind in _exported(algorithms, Algorithm)},
    "Scaffold-first": lambda: Scaffold(option=1),
    "MAML-second": lambda: MAML(first_order=False),
    **{f"FedOpt-{name}": lambda name=name: FedOpt(name) for name in ("sgd", "adagrad", "yogi")},
    "FedHyper-clients": lambda: FedHyper(["server", "client"]),
    "FedAvg-personal": lambda: FedAvg(momentum=0.5, local="net.3.*"),
}
CLIENT: dict[str, dict[str, float]] = {
    "FedPA": {"epochs": 3},  # which takes several samples
    "DeltaSGD": {"lr": 2.0, "epochs": 2, "batch_size": 2},  # which comes to both bounds
}
"""Values of local training with which all hyperparameters have an effect."""
TUNERS = {kind.__name__: (lambda kind=kind: testing.toy_instance(kind)) for kind in _exported(tuners, Tuner)}
SEARCHES = {
    **{kind.__name__: (lambda kind=kind: _search(kind)) for kind in _exported(searches, Search)},
    "per-client": lambda: RandomSearch(toy_space(), budget=8, max_rounds=4, per_client=True),
}
ALL = {**ALGORITHMS, **TUNERS, "Fixed-set": lambda: Fixed({"lr": 0.3, "epochs": 2}, {"momentum": 0.5}), **SEARCHES}
NO_SPACE = ("Fixed", "Replay", "FedTuning", "Fathom")
SIDE_BY_SIDE = ("FedProx", "FedOpt", "Scaffold", "FedDyn", "FedEx", "SuccessiveHalving")
STATES = ("Scaffold", "FedDyn")
"""Clients' states are what side by side changes in a checkpoint; tests/resume/ has it with a tuner and a search."""
VECTORIZED = Vectorized(compile=False)
SHARED = [
    testing.check_same_seed,
    testing.check_resume,
    testing.check_nan_survives,
    testing.check_best,
    testing.check_identity,
]


def _inherits(name: str, *methods: str) -> bool:
    """Say whether an algorithm has these from the base class."""
    kind = type(ALGORITHMS[name]())
    return all(getattr(kind, one) is getattr(Algorithm, one) for one in methods)


def _effects(name: str) -> list[Callable[..., None]]:
    """Return the check of an algorithm's own hyperparameters, if it has any.

    FedAvg's are checked with FedAvg where the server's step is inherited, those of a class with its plain object.
    """
    algorithm, known = ALGORITHMS[name](), set()
    if "-" in name:
        known = {*type(algorithm)().client, *type(algorithm)().server}
    elif name != "FedAvg" and _inherits(name, "aggregate", "step", "server_lr", "server_options", "server_optimizer"):
        known = set(FedAvg().server)
    if known >= {*algorithm.client, *algorithm.server}:
        return []
    return [partial(testing.check_hyperparameters, skip=known, client=CLIENT.get(name))]


def _checks(name: str) -> list[Callable[..., None]]:
    """Return what a subject is checked for, together, since the whole run is shared.

    An option of an algorithm changes its numbers and its states; the rest is the algorithm's.
    """
    shared = [testing.check_resume] if name in ALGORITHMS and "-" in name else SHARED
    own = _effects(name) if name in ALGORITHMS else []
    # A method with a rate of its own writes its rule down in its own test file.
    own += [testing.check_aggregation] if name in ALGORITHMS and _inherits(name, "server_lr") else []
    own += [testing.check_suggestions] if name in {**TUNERS, **SEARCHES} and name not in NO_SPACE else []
    return [*shared, *own]


@pytest.mark.parametrize(("name", "check"), [(name, check) for name in ALL for check in _checks(name)])
def test_all_keep(name: str, check: Callable[..., None]) -> None:
    check(ALL[name])


@pytest.mark.parametrize("kind", _exported(algorithms, Algorithm))
def test_epochs_of_what_is_local_take_effect_in_all_methods(kind: Any) -> None:
    testing.check_hyperparameters(lambda: kind(local="net.3.*"), skip={*kind().client, *kind().server})


@pytest.mark.parametrize(
    ("name", "check"),
    [(name, testing.check_executor) for name in SIDE_BY_SIDE]
    + [(name, testing.check_resume) for name in STATES]
    + [("FedProx", testing.check_nan_survives)],
)
def test_side_by_side(name: str, check: Callable[..., None]) -> None:
    check(ALL[name], executor=VECTORIZED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_resume_from_every_checkpoint(name: str) -> None:
    testing.check_resume(ALL[name], every=True)


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


class Spreads(FedAvg):
    """Aggregates to nan where the loss was."""

    def aggregate(self, arm: Any) -> None:
        if arm.pseudo_gradient() is None:
            for tensor in arm.weights:
                tensor.data.fill_(float("nan"))
        super().aggregate(arm)


class Twice(FedAvg):
    """Takes two steps a round."""

    def aggregate(self, arm: Any) -> None:
        before, gradient = [tensor.detach().clone() for tensor in arm.weights], arm.pseudo_gradient()
        super().aggregate(arm)
        for tensor, old, grad in zip(arm.weights, before, gradient or before, strict=True):
            tensor.data.copy_(old - 2 * grad)


class Boasts(Forgetful):
    """Would deploy what it never suggests."""

    def best(self, arm: Any) -> dict[str, Any]:
        return {"lr": 0.1, "color": "red"}


class Idle(FedAvg):
    """Declares what it does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.server["warmth"] = 1.0


@pytest.mark.parametrize(
    ("check", "make", "complaint"),
    [
        (testing.check_resume, Forgetful, "the run differs in"),
        (testing.check_same_seed, Global, "the same seed gave two runs"),
        (testing.check_nan_survives, Spreads, "the run did not go on"),
        (testing.check_aggregation, Twice, "weight 0 moved by something else"),
        (testing.check_best, Boasts, "does not go back in"),
        (testing.check_hyperparameters, Idle, "server 'warmth' has no effect"),
    ],
)
def test_a_broken_contract_is_noticed(check: Any, make: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(make)


def test_suggestions_are_held_against_the_tuner_s_own_space() -> None:
    space = SearchSpace(client={"lr": Float(0.6, 0.9)})  # beyond the toy space
    testing.check_suggestions(lambda: FedEx(space, configs=2))
    with pytest.raises(AssertionError, match="outside of the space"):
        testing.check_suggestions(lambda: FedEx(space, configs=2), toy_space())
