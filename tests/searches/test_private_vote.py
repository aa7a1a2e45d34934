"""Private votes: the count and its noise recomputed from the table of jobs, what it costs, and who is asked when."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FedEx, Float, NoisyScores, PrivateVote, SearchSpace, seeding
from lightning_fedhpo.participation.privacy import gaussian_delta
from lightning_fedhpo.testing import uneven_data
from tests.fits import fit

SPACE = SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)})


def voted(rounds: int = 3, candidates: int = 4, **options: Any) -> tuple[Any, PrivateVote]:
    more = {name: options.pop(name) for name in ("mode", "monitor", "data") if name in options}
    search = PrivateVote(SPACE, rounds, candidates, **options)
    fed, _, _ = fit(rounds, search, cohort=2, seed=5, **{"data": uneven_data()} | more)
    return fed, search


@pytest.mark.parametrize(
    ("options", "sign"),
    [({"epsilon": None}, 1), ({"vote_after": 2}, 1), ({"mechanism": "laplace", "epsilon": 0.4}, 1)]
    + [({"epsilon": None, "mode": "max", "monitor": "val_acc"}, -1)],
)
def test_the_winner_has_the_most_noisy_votes(options: dict[str, Any], sign: int) -> None:
    fed, search = voted(**options)
    last, clients = options.get("vote_after", 1) - 1, len(uneven_data())
    counts, jobs = np.zeros(4), [row for row in fed.result.jobs if row["round"] == last]
    for client in range(clients):
        losses = [
            next((sign * row["score_after"] for row in jobs if (row["arm"], row["client"]) == (arm, client)
                  and row["score_after"] is not None), math.inf)
            for arm in range(4)
        ]  # fmt: skip
        if min(losses) < math.inf:
            counts[int(np.argmin(losses))] += 1
    epsilon = options.get("epsilon", 1.0)
    if epsilon is not None:
        draw = seeding.rng(5, seeding.VOTES, last)
        laplace = options.get("mechanism") == "laplace"
        counts += draw.laplace(0.0, 2 / epsilon, 4) if laplace else draw.normal(0.0, search.noise, 4)
    assert search.votes == pytest.approx(counts)
    living = [arm["index"] for arm in fed.result.arms if arm["eliminated_at"] is None]
    assert living == [int(np.argmax(counts))]


def test_gaussian_noise_hides_a_vote_that_moves() -> None:
    """One client's vote moves the sums by sqrt(2): noise over it has the delta that was asked for."""
    search = PrivateVote(SPACE, 5, epsilon=0.7, delta=1e-4)
    assert gaussian_delta(search.noise / math.sqrt(2), 0.7) == pytest.approx(1e-4, rel=1e-6)


def test_epsilon_does_not_depend_on_the_number_of_candidates() -> None:
    for candidates in (2, 6):
        ledger = voted(2, candidates, epsilon=0.5)[0].result.ledger
        assert (ledger["epsilon"], ledger["epsilon_per_release"], ledger["delta"]) == (pytest.approx(0.5), 0.5, 1e-5)
    assert "epsilon" not in voted(2, 3, epsilon=None)[0].result.ledger


def test_all_clients_vote_and_the_loops_cohort_trains_on() -> None:
    fed, search = voted(rounds=4, candidates=3)
    of_round = [[row for row in fed.result.jobs if row["round"] == number] for number in range(4)]
    assert [len(rows) for rows in of_round] == [3 * len(uneven_data()), 2, 2, 2]
    assert fed.result.ledger["rounds"] == search.spends == 3 + 3


def test_who_learns_from_scores_is_not_private() -> None:
    with pytest.raises(MisconfigurationException, match="PrivateVote is private, and FedEx learns from"):
        fit(2, PrivateVote(SPACE, 2), FedEx(SPACE, configs=2))
    with pytest.raises(MisconfigurationException, match="`noise` releases clients' scores besides"):
        fit(2, PrivateVote(SPACE, 2), noise=NoisyScores(clients=0.5))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"epsilon": 0.0}, "`epsilon` must be above 0"), ({"delta": None}, "needs a `delta`")]
    + [({"candidates": 1}, "`candidates` must be at least 2"), ({"vote_after": 4}, "`vote_after` must be at most 3")],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PrivateVote(SPACE, 3, **wrong)
