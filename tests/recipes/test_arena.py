"""The arena's script: rows of runs, ranks over federations, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.sweep_data import SweepRun

FOLDER = Path(__file__).parents[2] / "recipes" / "arena"
LEDGER = {"rounds": 100, "client_updates": 1000, "local_steps": 9000, "bytes_up": 5, "bytes_down": 6, "seconds": 7.4}


@pytest.fixture(scope="module")
def arena() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield import_module("arena")


def run(folder: Path, overrides: list[str], seed: int = 0, **spent: int) -> SweepRun:
    """A run with a budget of 1,000 client updates, tested after 120, 240 and 260 of them, and at its end."""
    (folder / "config.yaml").write_text("arena: {updates: 1000}")
    history = Table(
        {
            "ledger/client_updates": [120, 240, 260, 600],
            "test/test_error": [0.5, 0.4, 0.3, None],
            "test/test_error_personalized": [0.45, 0.35, 0.25, None],
        }
    )
    test = {"global": {"test_error": 0.2}, "personalized": {"test_error": 0.1}}
    return SweepRun(folder, tuple(overrides), seed, history, {"ledger": LEDGER | spent, "test": test})


def row(method: str, seed: int, error: float, **more: str) -> dict[str, str]:
    return {"method": method, "noise": "", "seed": str(seed), "error_personalized_100": str(error), **more}


def test_a_run_is_a_row_with_the_last_test_within_each_part_of_the_budget(arena: ModuleType, tmp_path: Path) -> None:
    first = ["+arena=femnist", "data.path=x.npz", "method=random_fedex", "noise=private_errors", "noise.epsilon=1"]
    found, wrong = arena.rows_of([run(tmp_path, first), run(tmp_path, ["+arena=femnist", "tuner=mine"], seed=3)])
    assert list(found) == ["femnist"] and not wrong
    noisy, own = found["femnist"]
    assert (noisy["method"], noisy["noise"]) == ("random_fedex", "noise=private_errors noise.epsilon=1")
    assert (own["method"], own["noise"], own["seed"]) == ("tuner=mine", "", "3")
    errors = [(own[f"error_{share}"], own[f"error_personalized_{share}"]) for share in (10, 25, 50, 100)]
    assert errors == [("", ""), ("0.40000", "0.35000"), ("0.30000", "0.25000"), ("0.20000", "0.10000")]
    assert (own["client_updates"], own["seconds"]) == ("1000", "7")


def test_a_run_off_the_budget_is_no_row(arena: ModuleType, tmp_path: Path) -> None:
    runs = [run(tmp_path, ["+arena=femnist", "method=gp"], client_updates=spent) for spent in (970, 1030, 985)]
    found, wrong = arena.rows_of(runs)
    assert [row["client_updates"] for row in found["femnist"]] == ["985"]
    assert wrong == [f"femnist gp seed 0: {spent} of 1000 updates" for spent in (970, 1030)]


def test_mean_ranks_of_what_all_federations_have(arena: ModuleType) -> None:
    """Ranks of a and b: 1 2, 1.5 1.5 on the first; 2 1 on the second, where only seed 0 has both."""
    first = [row("a", 0, 0.1), row("b", 0, 0.2), row("a", 1, 0.3), row("b", 1, 0.3), row("c", 0, 0.0), row("c", 1, 0.0)]
    second = [row("a", 0, 0.4), row("b", 0, 0.2)]
    found, blocks = arena.mean_ranks({"x": first, "y": second}, "error_personalized_100")
    assert blocks == 3
    assert found == {"a": pytest.approx((1 + 1.5 + 2) / 3), "b": pytest.approx((2 + 1.5 + 1) / 3)}


def test_a_method_with_fewer_seeds_waits(arena: ModuleType) -> None:
    rows = [row("a", 0, 0.1), row("a", 1, 0.2), row("b", 0, 0.2), row("a", 2, 0.9, noise="noise.epsilon=1")]
    assert arena.by_method(rows, "error_personalized_100") == {"a": [0.1, 0.2]}


def test_what_has_no_row_is_missing(arena: ModuleType) -> None:
    rows = [row("random", seed, 0.1) for seed in (0, 1, 2, 4)] + [row("gp", seed, 0.1) for seed in range(5)]
    lacking = arena.missing(rows, "femnist")
    assert lacking["random"] == [3] and "gp" not in lacking and lacking["halving"] == [0, 1, 2, 3, 4]
    assert "fedtune" not in lacking and "fedtune" in arena.missing([], "fashion_mnist")


def test_the_critical_difference_of_the_textbook(arena: ModuleType) -> None:
    pytest.importorskip("scipy", reason="needs the extra `bayes`")
    # Demsar (2006), table 5: q is 2.569 for four methods and 3.164 for ten.
    assert arena.critical_difference(4, 14) == pytest.approx(2.569 * (4 * 5 / (6 * 14)) ** 0.5, abs=0.01)
    assert arena.critical_difference(10, 30) == pytest.approx(3.164 * (10 * 11 / (6 * 30)) ** 0.5, abs=0.01)


def test_the_page_has_what_follows_from_the_rows(arena: ModuleType) -> None:
    pytest.importorskip("scipy", reason="needs the extra `bayes`")
    text, charts = arena.figures()
    assert (FOLDER / "README.md").read_text(encoding="utf-8").partition(arena.MARK)[2].strip() == text.strip()
    assert all((FOLDER / f"{name}.png").is_file() for name in charts)
