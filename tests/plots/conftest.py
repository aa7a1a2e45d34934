"""Figures are drawn without a screen, and closed after each test."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

from lightning_fedhpo.cli.main import train
from tests.runs import SEARCHED, composed, quiet


@pytest.fixture(autouse=True)
def no_screen() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of ``fedhpo``: three arms with FedEx, of which one goes on after the third round."""
    root = tmp_path_factory.mktemp("plotted")
    with quiet(root / "home"), redirect_stdout(io.StringIO()):
        train(composed(root / "run", *SEARCHED, "tuner.configs=4", "report=false"))
    return root / "run"
