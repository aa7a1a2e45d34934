"""The verdict: the runner-up, the noise, hyperparameters at an edge, on runs made up here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import pytest

from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.run_data import RunData
from lightning_fedhpo.report import verdict


def run_of(scores: Sequence[Sequence[float]], mode: str = "min", **more: object) -> RunData:
    """A run of arms with these scores; the first arm is the best."""
    cells = [(number, arm, score) for arm, told in enumerate(scores) for number, score in enumerate(told)]
    history = Table({name: [cell[place] for cell in cells] for place, name in enumerate(("round", "arm", "score"))})
    arms = [{"index": arm, "rounds": len(told), "eliminated_at": None} for arm, told in enumerate(scores)]
    given = {"history": history, "arms": arms, "mode": mode, "monitor": "val_loss", "trajectory": [{"arm": 0}]}
    return RunData(**{"summary": {"seed": 5, "test": None}, **given, **more})  # type: ignore[arg-type]  # of mixed types


def test_the_runner_up_lived_longest_beside_the_best() -> None:
    found = verdict.duel(run_of([[5.0, 1.0, 1.0, 1.0], [1.0, 1.0], [5.0, 1.5, 1.4], [5.0, 1.7, 1.6]]))
    assert found is not None and (found.best, found.other) == (0, 2)
    gaps = [0.0, 0.5, 0.4]
    assert found.gaps == pytest.approx(gaps) and found.mean == pytest.approx(0.3)
    assert found.half == pytest.approx(4.302653 * statistics.stdev(gaps) / math.sqrt(3))  # Student's t, two degrees
    assert not found.clear, "0.3 is less than 0.66"


@pytest.mark.parametrize(("mode", "sign"), [("min", 1), ("max", -1)])
def test_a_clear_lead_and_one_within_the_noise(mode: str, sign: int) -> None:
    far = run_of([[sign * 1.0] * 12, [sign * (2.0 + n % 2 / 10) for n in range(12)]], mode)
    near = run_of([[sign * 1.0] * 12, [sign * (1.01 + (-1) ** n) for n in range(12)]], mode)
    for run, words, told in ((far, "a clear lead", "clear"), (near, "within the noise", "within the noise")):
        assert words in " ".join(verdict.certainty(run)) and "seed (5)" in " ".join(verdict.certainty(run))
        assert verdict.headline(run).endswith(f"Its lead over the runner-up is {told}.")


def test_a_clear_lead_of_the_runner_up_is_not_called_noise() -> None:
    run = run_of([[2.0 + n % 2 / 10 for n in range(12)], [1.0] * 12])
    assert "behind the runner-up, arm 1, by 1.1 " in (told := " ".join(verdict.certainty(run)))
    assert "noise. Another" not in told and "though the search chose arm 0" in told
    assert verdict.headline(run).endswith(
        "The runner-up had better scores, clearly: the search may have chosen by chance."
    )


def test_an_arm_that_was_trained_anew_is_none_of_the_search() -> None:
    run = run_of([[1.0, 1.0], [0.5]], best_arm=1)
    assert verdict.headline(run).startswith("The run's one arm has trained to its end, and the model was trained anew")
    assert "no search compared it" in " ".join(verdict.certainty(run))


@pytest.mark.parametrize(
    ("took_part", "told"),
    [(3, "about 0.71, as a deviation."), (2, "about 0.71, as a deviation: each round has another cohort.")],
)
def test_rounds_of_all_clients_have_no_other_cohort(took_part: int, told: str) -> None:
    cells = {"round": range(5), "arm": [0] * 5, "score": [1.0, 2.0, 1.0, 2.0, 1.0], "clients": [took_part] * 5}
    history = Table({name: list(column) for name, column in cells.items()})
    run = run_of([[1.0]], history=history, federation=Table({"client": [0, 1, 2]}))
    assert any(sentence.endswith(told) for sentence in verdict.certainty(run))  # steps of 1: the noise is 1 / sqrt(2)


def test_one_arm_has_no_runner_up() -> None:
    assert verdict.duel(run_of([[1.0, 2.0]])) is None
    assert "no search compared it" in " ".join(verdict.certainty(run_of([[1.0, 2.0]])))


def test_the_tuner_says_how_decided_it_is() -> None:
    configs = Table({"arm": [0, 0, 1], "config": [0, 1, 0], "probability": [0.2, 0.8, 1.0]})
    told = " ".join(verdict.certainty(run_of([[1.0], [2.0]], configs=configs)))
    assert "number 1 a probability of 80%, and the next one, number 0, 20%: it has not decided yet" in told


def test_a_tuner_of_each_client_says_how_decided_it_is() -> None:
    shares = [0.75, 0.25, 0.45, 0.55]  # the mean of 0.75 and 0.55 is 0.65
    configs = Table({"arm": [0] * 4, "client": [0, 0, 1, 1], "config": [0, 1] * 2, "probability": shares})
    told = " ".join(verdict.certainty(run_of([[1.0]], configs=configs)))
    assert "a probability of 65% on average, where equal ones have 50%: the tuner has not decided yet" in told


def test_what_to_be_warned_of() -> None:
    history = Table({"round": [0, 1], "arm": [0, 0], "score": [1.0, 1.0], "dropped": [2, 1]})
    log = {"_target_": "lightning_fedhpo.space.Float", "low": 1e-4, "high": 1.0, "log": True}
    free = {"type": "float", "low": 0.0, "high": 0.9}
    run = run_of(
        [[1.0]],
        history=history,
        ledger={"client_updates": 20},
        summary={"warnings": ["a client diverged"]},
        settings={"space": {"client": {"lr": log, "momentum": free}, "server": {"lr": log, "decay": log}}},
        best={"client": {"lr": 0.95, "momentum": 0.0}, "server": {"lr": 0.01, "decay": 0.0}},
    )
    told = list(verdict.warnings_of(run))
    assert told[0] == "a client diverged" and told[1].startswith("3 of 20 client updates were left out")
    assert told[2:] == ["The client's lr, 0.95, is at the upper end of its range: a wider one may hold a better value."]
