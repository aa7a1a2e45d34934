"""The result as people see it: a short text, a table for notebooks, DataFrames, and lines while the run goes on."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from lightning_fedhpo import Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.run import result_text
from lightning_fedhpo.testing import toy_tensors
from tests.fits import fit
from tests.plots.plotted_runs import chosen, halved


def test_the_text_is_short() -> None:
    result = halved()
    lines = repr(result).splitlines()
    assert len(lines) == 5 and len(repr(result)) < 500
    best = f"  best     arm {result.best_arm} of 9: val_loss {result.score:.4g} after 10 rounds, of clients' models"
    assert lines[1].startswith(best)
    assert lines[4].startswith("  spent    52 rounds, 156 client updates")  # 9 x 4 + 3 x 5 + 1 rounds, 3 clients each
    assert "a configuration for each of 6" in repr(chosen())


@pytest.mark.parametrize(
    ("options", "meaning"),
    [
        ({}, "of clients' models after their own training (the global model is scored by score_before=True)"),
        (
            {"score_before": True},
            "of clients' models after their own training (the global model that they began with has {})",
        ),
        ({"target": "global"}, "by the global model"),
        ({"target": "server", "server_data": toy_tensors(30)}, "by the global model on the server's examples"),
    ],
)
def test_it_says_which_model_the_score_is_of(options: dict[str, Any], meaning: str) -> None:
    result = fit(2, **options)[0].result
    shown = meaning.format(f"{result.history[-1]['val/val_loss']:.4g}" if "{}" in meaning else "")
    assert repr(result).splitlines()[1].endswith(f"val_loss {result.score:.4g} after 2 rounds, {shown}")


def test_notebooks_get_a_table_without_markup_of_users() -> None:
    result = halved()
    assert result._repr_html_().count("<tr>") == 4
    named = replace(result, best={"client": {"optimizer": "<script>"}, "server": {}})
    assert "&lt;script&gt;" in named._repr_html_() and "<script>" not in named._repr_html_()


def test_data_frames_have_what_the_tables_have() -> None:
    result = halved()
    frames = result.to_pandas()
    assert frames["history"]["score"].tolist() == result.history["score"]
    assert frames["jobs"]["client"].tolist() == result.jobs["client"]
    arms = frames["arms"]
    assert arms["client/lr"].tolist() == [arm["client"]["lr"] for arm in result.arms]
    assert arms["score"].tolist() == [arm["scores"][-1] for arm in result.arms]
    assert sorted(arms["eliminated_at"].dropna()) == [4] * 6 + [9] * 2


def test_without_pandas_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        halved().to_pandas()


@pytest.mark.parametrize(("seed", "lines"), [(3, 2), (2**40, 3)])
def test_a_line_at_each_elimination_and_at_the_end(seed: int, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch draws for itself as a seed is large: then the weights of the module may be unseeded, too."""
    told: list[str] = []
    monkeypatch.setattr(result_text.LOGGER, "info", told.append)
    space = SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fed, _, _ = fit(4, SuccessiveHalving(space, eta=2, eliminations=1, budget=6, max_rounds=4))
    (out,) = [arm["index"] for arm in fed.result.arms if arm["eliminated_at"]]
    score = fed.result.history[3 if out == 0 else 2]["score"]  # of the survivor after two rounds
    assert len(told) == lines
    assert (
        told[0]
        == f"After 2 rounds 1 of 2 arms were eliminated ({out}); the best is arm {1 - out} with val_loss {score:.4g}."
    )
    assert told[1].startswith(f"Best arm {1 - out} of 2: val_loss {fed.result.score:.4g} after 4 rounds, of clients' ")
    assert "; client lr " in told[1]
    assert [line for line in told if "seed_everything" in line] == told[2:]
