"""Search and tuner share one space: the tuner takes the search's where it is given none."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_fedhpo import (
    Choice,
    FedEx,
    FedPop,
    FedTune,
    Fixed,
    Float,
    MultiplicativeWeights,
    RandomSearch,
    Replay,
    SearchSpace,
    SuccessiveHalving,
)
from lightning_fedhpo.tuners import Tuner
from tests.fits import fit

SPACE = SearchSpace(client={"lr": Choice([0.1, 0.01])}, server={"lr": Float(0.5, 2.0, log=True)})
HALVING = {"eta": 2, "eliminations": 1, "budget": 5, "max_rounds": 3}


@pytest.mark.parametrize("kind", [FedEx, MultiplicativeWeights, FedPop, FedTune])
def test_a_tuner_without_a_space_takes_the_search_s(kind: Any) -> None:
    own, borrowed = kind(SPACE), kind()
    borrowed.use_space(SPACE)
    assert borrowed.identity() == own.identity()
    assert (borrowed.client_names, borrowed.server_names) == (own.client_names, own.server_names)
    assert (borrowed.borrows_space, own.borrows_space) == (True, False)


def test_it_makes_the_same_run_and_takes_another_search_s_space_later() -> None:
    tuner = FedEx(configs=3, epsilon=1.0)
    histories = [
        fit(3, SuccessiveHalving(SPACE, **HALVING), one)[0].result.history
        for one in (tuner, FedEx(SPACE, configs=3, epsilon=1.0))
    ]
    assert repr(histories[0]) == repr(histories[1])
    fit(1, RandomSearch(SearchSpace(client={"momentum": Choice([0.0, 0.5])}), budget=1, max_rounds=1), tuner)
    assert tuner.client_names == ("momentum",)


@pytest.mark.parametrize(
    ("tuner", "space", "message"),
    [
        (
            FedEx(),
            SearchSpace(server={"lr": Float(0.5, 2.0)}),
            "FedEx tunes client hyperparameters, .* `space` has none",
        ),
        (FedEx(SearchSpace(client={"lr": Float(0.01, 0.1)})), SPACE, r"must agree on client.lr, got Float\(.* Choice"),
        (FedEx(SPACE), SearchSpace(client={"momentum": Float(0.0, 0.9)}), "only the tuner's space has lr"),
        (Fixed({"lr": 0.1}), SearchSpace(client={"lr": Float(0.01, 0.1)}), "^client.lr set twice: RandomSearch draws"),
        (
            Replay([{"client": {"lr": 0.1}, "server": {"lr": 1.0}}]),
            SPACE,
            r"^client.lr, server.lr set twice: .* take these names out of Replay",
        ),
    ],
)
def test_spaces_that_contradict_each_other(tuner: Tuner, space: SearchSpace, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(1, RandomSearch(space, budget=1, max_rounds=1), tuner)


def test_without_a_search_a_tuner_needs_a_space() -> None:
    with pytest.raises(ValueError, match="FedEx tunes client hyperparameters"):
        fit(1, FedEx())


def test_the_search_draws_what_the_tuner_leaves() -> None:
    search = RandomSearch(SearchSpace(client={"momentum": Float(0.0, 0.9)}), budget=1, max_rounds=1)
    fed, _, _ = fit(1, search, FedEx(SearchSpace(client={"lr": Float(0.01, 0.1)}), configs=2))
    assert {"lr", "momentum"} <= set(fed.result.best["client"])
    assert {"client/lr", "client/momentum"} <= set(fed.result.history[0])
