"""Runs with their reports, and a browser to open them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from lightning_fedhpo.cli.main import train
from lightning_fedhpo.cli.report import main
from tests.report.browser import CHROMIUM, Browser
from tests.runs import SEARCHED, composed, quiet

RUNS = {
    "demo": [*SEARCHED, "tuner.configs=4"],
    "fedpop": ["tuner=fedpop", "search=random", "search.budget=18", "search.max_rounds=6", "tuner.interval=0.3"],
    "fedtune": ["tuner=fedtune", "space=fedtune", "search=none", "trainer.max_epochs=3", "fed.cohort=8"],
}
"""Three arms with FedEx, of which one goes on after the third round; a population of three; one arm of FedTune."""


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of three runs and of a sweep, each with its ``report.html``."""
    root = tmp_path_factory.mktemp("reports")
    with quiet(root / "home"), redirect_stdout(io.StringIO()):
        for name, overrides in RUNS.items():
            more = ["data.server_fraction=0.1"] if name == "fedtune" else []
            train(composed(root / name, *overrides, *more, "report=true"))
        for method in ("fixed", "none"):
            for seed in range(2):
                folder = root / "sweep" / f"{method}{seed}"
                tests = ["search=none", f"tuner={method}", f"seed={seed}", "trainer.max_epochs=4", "fed.evaluate_at=1"]
                train(composed(folder, *tests))
                (folder / ".hydra").mkdir()
                told = [f"tuner={method}", f"seed={seed}", *([f"+note={'long' * 20}"] if method == "none" else [])]
                (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {one}\n" for one in told))
        assert main([str(root / "sweep")]) == 0
    return {name: root / name for name in (*RUNS, "sweep")}


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH to look at reports with")
    with Browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened
