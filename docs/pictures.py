"""Draws the pictures of docs/methods anew: runs each page's command and draws a figure of it.

python -m docs.pictures                 # all pages, some minutes
python -m docs.pictures fedex fedpop    # some
python -m docs.pictures report          # README's: the report of `fedhpo` without arguments, by chromium
python -m docs.pictures --runs runs     # keeps the runs in a folder, and draws from those that are there
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from PIL import Image

from lightning_fedhpo import plots
from tests.report.browser import Browser

DOCS = Path(__file__).parent
FIGURES: dict[str, Callable[..., Any]] = {
    "fedavg": plots.arms,
    "fedprox": plots.error_by_budget,
    "reptile": plots.error_by_budget,
    "fedopt": plots.error_by_budget,
    "fedexp": plots.error_by_budget,
    "fedhyper": plots.error_by_budget,
    "scaffold": plots.error_by_budget,
    "feddyn": plots.error_by_budget,
    "fedpa": plots.error_by_budget,
    "delta-sgd": plots.error_by_budget,
    "ditto": partial(plots.error_by_budget, metric="test_error_personalized"),
    "maml": partial(plots.error_by_budget, metric="test_error_personalized"),
    "random-search": partial(plots.hyperparameter_slice, name="client/lr"),
    "successive-halving": plots.arms,
    "hyperband": plots.arms,
    "bayesian-search": partial(plots.hyperparameter_slice, name="client/lr"),
    "private-vote": plots.arms,
    "fixed": plots.clients,
    "fedex": plots.probabilities,
    "multiplicative-weights": plots.probabilities,
    "fedpop": plots.lineage,
    "fedtune": plots.client_choices,
    "fedtuning": partial(plots.trajectory, name="client/epochs"),
    "fathom": partial(plots.trajectory, name="client/lr"),
    "replay": partial(plots.trajectory, name="client/lr"),
}


def command(page: str) -> list[str]:
    """Return the arguments of the first command on a method's page."""
    text = (DOCS / "methods" / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(r"```bash\nfedhpo (.*)\n", text)
    assert found, page
    return shlex.split(found[1])


def run(page: str, runs: Path) -> Path:
    """Run a page's command, unless it has been, and return the folder of its run or sweep."""
    folder = runs / page
    if not folder.exists():
        runs.mkdir(parents=True, exist_ok=True)
        given = command(page) if page in FIGURES else ["logger=none"]
        arguments = [argument.replace("<folder>", str(runs / "fedpop")) for argument in given]
        where = f"hydra.{'sweep' if '-m' in arguments else 'run'}.dir={page}"
        subprocess.run([sys.executable, "-m", "lightning_fedhpo.cli.main", *arguments, where], check=True, cwd=runs)
    return folder


def draw(page: str, runs: Path) -> None:
    """Draw a page's picture."""
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    FIGURES[page](run(page, runs), ax=axes)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100)
    plt.close(figure)
    save(Image.open(drawn), page)


def photograph(runs: Path) -> None:
    """Take a picture of the upper part of a run's report."""
    with tempfile.TemporaryDirectory() as passing, Browser(Path(passing)) as browser:
        browser.open(run("report", runs) / "report.html", width=1100)
        browser.save_screenshot(Path(passing) / "report.png", last="#probabilities")
        save(Image.open(Path(passing) / "report.png"), "report")


def save(picture: Image.Image, page: str) -> None:
    """Save a picture with a palette."""
    picture.convert("RGB").quantize(256).save(DOCS / "pictures" / f"{page}.png", optimize=True)


def main() -> None:
    """Draw the pages that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "pages", nargs="*", default=[*FIGURES, "report"], help="of docs/methods, without .md, or report"
    )
    parser.add_argument("--runs", type=Path, help="a folder that keeps the runs")
    asked = parser.parse_args()
    matplotlib.use("agg")
    with tempfile.TemporaryDirectory() as passing:
        runs = (asked.runs or Path(passing)).absolute()
        for page in asked.pages:
            photograph(runs) if page == "report" else draw(page, runs)


if __name__ == "__main__":
    main()
