"""The verdict: the runner-up, the noise, hyperparameters at an edge, on runs made up here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import pytest

from lightning_fedhpo.plots.run_data import RunData
from lightning_fedhpo.report import verdict
from lightning_fedhpo.run.table import Table


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
    assert found.error == pytest.approx(statistics.stdev(gaps) / math.sqrt(3))
    assert not found.clear, "0.3 is less than two errors of 0.15"


@pytest.mark.parametrize(("mode", "sign"), [("min", 1), ("max", -1)])
def test_a_clear_lead_and_one_within_the_noise(mode: str, sign: int) -> None:
    far = run_of([[sign * 1.0] * 12, [sign * (2.0 + n % 2 / 10) for n in range(12)]], mode)
    near = run_of([[sign * 1.0] * 12, [sign * (1.01 + (-1) ** n) for n in range(12)]], mode)
    for run, words, told in ((far, "a clear lead", "clear"), (near, "within the noise", "within the noise")):
        assert words in " ".join(verdict.certainty(run)) and "seed (5)" in " ".join(verdict.certainty(run))
        assert verdict.headline(run).endswith(f"Its lead over the runner-up is {told}.")


def test_one_arm_has_no_runner_up() -> None:
    assert verdict.duel(run_of([[1.0, 2.0]])) is None
    assert "no search compared it" in " ".join(verdict.certainty(run_of([[1.0, 2.0]])))


def test_the_tuner_says_how_decided_it_is() -> None:
    configs = Table({"arm": [0, 0, 1], "config": [0, 1, 0], "probability": [0.2, 0.8, 1.0]})
    told = " ".join(verdict.certainty(run_of([[1.0], [2.0]], configs=configs)))
    assert "number 1 a probability of 80%, and the next one, number 0, 20%: it has not decided yet" in told


def test_what_to_be_warned_of() -> None:
    history = Table({"round": [0, 1], "arm": [0, 0], "score": [1.0, 1.0], "dropped": [2, 1]})
    log = {"_target_": "lightning_fedhpo.space.Float", "low": 1e-4, "high": 1.0, "log": True}
    free = {"_target_": "lightning_fedhpo.space.Float", "low": 0.0, "high": 0.9}
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
