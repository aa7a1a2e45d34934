"""A run of ``fedhpo`` that several files look at."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

from lightning_fedhpo.cli.main import train
from tests.runs import PLAIN, Whole, composed, quiet


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A run of four rounds that nobody interrupted, with W&B offline."""
    folder = tmp_path_factory.mktemp("whole")
    with quiet(folder / "home"), redirect_stdout(io.StringIO()) as said:
        summary = train(composed(folder / "run", *PLAIN, "seed=3", logger="wandb"))
    return Whole(folder / "run", summary, said.getvalue())
