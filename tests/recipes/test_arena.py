"""The arena's script: rows of runs, ranks over federations, and what is missing."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from lightning_fedhpo.files.table import Table
from lightning_fedhpo.plots.sweep_data import SweepRun

FILE = Path(__file__).parents[2] / "recipes" / "arena" / "arena.py"
LEDGER = {"rounds": 100, "client_updates": 1000, "local_steps": 9000, "bytes_up": 5, "bytes_down": 6, "seconds": 7.4}


@pytest.fixture(scope="module")
def arena() -> ModuleType:
    spec = spec_from_file_location("arena", FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(overrides: list[str], seed: int = 0) -> SweepRun:
    """A run of 100 rounds of single arms, tested after 12, 27 and 52 of them, and at its end."""
    spent = [12.0, 27.0, 52.0]
    history = Table(
        {
            "ledger/rounds": spent,
            "test/test_error": [0.5, 0.4, 0.3],
            "test/test_error_personalized": [0.45, 0.35, 0.25],
        }
    )
    test = {"global": {"test_error": 0.2}, "personalized": {"test_error": 0.1}}
    return SweepRun(Path(), tuple(overrides), seed, history, {"ledger": LEDGER, "test": test})


def row(method: str, seed: int, error: float, **more: str) -> dict[str, str]:
    return {"method": method, "noise": "", "seed": str(seed), "error_personalized_100": str(error), **more}


def test_a_run_is_a_row(arena: ModuleType) -> None:
    first = ["+arena=femnist", "data.path=x.npz", "method=random_fedex", "noise=noisy_scores", "noise.epsilon=10"]
    found = arena.rows_of([run(first), run(["+arena=femnist", "tuner=mine"], seed=3)])
    assert list(found) == ["femnist"]
    noisy, own = found["femnist"]
    assert (noisy["method"], noisy["noise"]) == ("random_fedex", "noise=noisy_scores noise.epsilon=10")
    assert (own["method"], own["noise"], own["seed"]) == ("tuner=mine", "", "3")
    errors = [(own[f"error_{share}"], own[f"error_personalized_{share}"]) for share in (10, 25, 50, 100)]
    assert errors == [("0.50000", "0.45000"), ("0.40000", "0.35000"), ("0.30000", "0.25000"), ("0.20000", "0.10000")]
    assert (own["client_updates"], own["seconds"]) == ("1000", "7")


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
    lacking = arena.missing(rows)
    assert lacking["random"] == [3] and "gp" not in lacking and lacking["halving"] == [0, 1, 2, 3, 4]


def test_the_critical_difference_of_the_textbook(arena: ModuleType) -> None:
    pytest.importorskip("scipy", reason="needs the extra `bayes`")
    # Demsar (2006), table 5: q is 2.569 for four methods and 3.164 for ten.
    assert arena.critical_difference(4, 14) == pytest.approx(2.569 * (4 * 5 / (6 * 14)) ** 0.5, abs=0.01)
    assert arena.critical_difference(10, 30) == pytest.approx(3.164 * (10 * 11 / (6 * 30)) ** 0.5, abs=0.01)
