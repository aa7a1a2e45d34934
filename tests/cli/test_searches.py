"""Runs of ``fedhpo`` with a search, small ones: who sets what, and what is spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_fedhpo.cli.main import train
from tests.runs import SEARCHED, SPENT, composed, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked

CLIENT = {"lr", "momentum", "weight_decay", "batch_size", "epochs"}
SERVER = {"lr", "momentum", "decay"}


@pytest.mark.parametrize(
    ("overrides", "arms", "spent"),
    [
        (["search=none", "trainer.max_epochs=3"], 1, 3),
        (["search=random", "search.budget=7", "search.max_rounds=2"], 3, 6),
        (["search=hyperband", "search.max_rounds=3"], 5, 11),  # 3 arms to round 1, one to 3; then 2 to 3
        (["search=halving", *SEARCHED], 3, 12),
        (["tuner=none", *SEARCHED], 3, 12),
        (["tuner=multiplicative", *SEARCHED], 3, 12),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, list) else None,
)
def test_every_search_runs(tmp_path: Path, overrides: list[str], arms: int, spent: int) -> None:
    summary = train(composed(tmp_path, *overrides))
    assert len(summary["arms"]) == arms
    assert summary["ledger"]["rounds"] == spent
    assert set(summary["best"]["client"]) == CLIENT and set(summary["best"]["server"]) == SERVER
    assert len({json.dumps(arm["server"]) for arm in summary["arms"]}) == arms
    for row in rows(tmp_path / "history.csv"):
        assert 0 < int(row["ledger/rounds"]) <= spent


def test_what_fixed_sets_is_pinned_and_the_search_draws_the_rest(tmp_path: Path) -> None:
    fixed = ["tuner=fixed", "+tuner.server.momentum=0.5"]
    summary = train(composed(tmp_path, *fixed, *SEARCHED))
    pinned = {"lr": 0.05, "batch_size": 16, "epochs": 3}
    for arm in summary["arms"]:
        assert arm["client"].items() >= pinned.items()
        assert set(arm["client"]) == CLIENT
        assert arm["server"]["momentum"] == 0.5
    for name in ("momentum", "weight_decay"):
        assert len({arm["client"][name] for arm in summary["arms"]}) == 3
    for name in ("lr", "decay"):
        assert len({arm["server"][name] for arm in summary["arms"]}) == 3
    for row in rows(tmp_path / "jobs.csv"):  # what was really used
        drawn = summary["arms"][int(row["arm"])]["client"]
        assert {name: float(row[name]) for name in CLIENT} == {name: float(drawn[name]) for name in CLIENT}


@pytest.mark.parametrize(("at", "expected"), [("4", [6, 9, 12]), ("[2,3,10]", [3, 10]), ("1", SPENT), ("null", [])])
def test_online_tests_stand_at_the_rounds_spent(tmp_path: Path, at: str, expected: list[int]) -> None:
    summary = train(composed(tmp_path, *SEARCHED, f"fed.evaluate_at={at}", "fed.evaluate_clients=5"))
    history = rows(tmp_path / "history.csv")
    tested = [row for row in history if row.get("test/test_error") and row["test/test_error_personalized"]]
    assert [int(row["ledger/rounds"]) for row in tested] == expected
    for row in tested:
        assert row["best"] == "True" and row["arm"] == row["test/arm"]
    assert summary["ledger"]["rounds"] == 12
