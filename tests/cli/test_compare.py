"""The comparison of a folder of runs, on folders written here."""

from __future__ import annotations

import csv
import json
import math
import statistics
from pathlib import Path

import pytest

from lightning_fedhpo.cli.compare import main, table_of
from lightning_fedhpo.plots.sweep_data import load_sweep


def write(folder: Path, told: list[str], seed: int, tests: dict[int, float], spent: int) -> None:
    """A run's folder with an error that was tested on the way."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {one}\n" for one in [*told, f"seed={seed}"]))
    last = tests[max(tests)]
    test = {"global": {"test_error": last}, "personalized": {"test_error": last / 2}}
    summary = {"seed": seed, "ledger": {"rounds": spent}, "test": test}
    (folder / "summary.json").write_text(json.dumps(summary))
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["round", "arm", "test/test_error", "test/test_error_personalized", "test/arm", "ledger/rounds"]
        )
        for number, rounds in enumerate(range(10, spent + 1, 10)):
            error = tests.get(rounds)
            row = ["", "", ""] if error is None else [error, error / 2, 0]
            writer.writerow([number, 0, *row, rounds])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two methods, three seeds each; one method runs on beyond the other's budget."""
    for seed in range(3):
        write(tmp_path / f"a{seed}", ["tuner=none"], seed, {50: 0.5 + seed / 10, 100: 0.4 + seed / 10}, 100)
        write(tmp_path / f"b{seed}", ["tuner=fedex"], seed, {50: 0.6, 100: 0.3 - seed / 100, 150: 0.1}, 150)
    return tmp_path


def test_seeds_are_one_row_at_equal_budget(folder: Path) -> None:
    table = table_of(load_sweep(folder))
    assert table["run"] == ["search alone", "tuner=fedex"]
    assert table["seeds"] == [3, 3]
    assert table["rounds"] == [100, 100]
    fedex = [0.3, 0.29, 0.28]
    assert table["test_error"] == pytest.approx([0.5, statistics.fmean(fedex)])
    assert table["test_error std"] == pytest.approx([0.1, statistics.stdev(fedex)])
    halves = [4.303 * value / math.sqrt(3) for value in (0.1, statistics.stdev(fedex))]  # Student's t, two degrees
    assert table["test_error ±"] == pytest.approx(halves)
    assert table["test_error_personalized"] == pytest.approx([0.25, 0.145])


def test_a_smaller_budget_looks_back(folder: Path) -> None:
    assert table_of(load_sweep(folder), budget=60)["test_error"] == pytest.approx([0.6, 0.6])


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--metric", "test_error", "--csv", str(tmp_path / "t.csv")]) == 0
    out = capsys.readouterr().out
    assert "tuner=fedex" in out
    assert "0.5000 ± 0.2484" in out and "95 % interval" in out  # 4.303 * 0.1 / sqrt(3)
    with (tmp_path / "t.csv").open() as file:
        assert [row["seeds"] for row in csv.DictReader(file)] == ["3", "3"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [(["--metric", "accuracy"], "no run was tested for accuracy"), (["--budget", "5"], "no test within 5 rounds")],
)
def test_what_cannot_be_compared_is_said(
    folder: Path, extra: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), *extra]) == 1
    assert message in capsys.readouterr().err


def test_an_empty_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "no finished run" in capsys.readouterr().err
