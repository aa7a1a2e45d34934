"""How near `explain` comes to the run: the time that it says, and what the fit then takes.

    python -m benchmarks.explained                      # the cases below
    python -m benchmarks.explained model=mlp trainer.max_epochs=24    # one run, by arguments of `fedhpo`

By the process's own time, so that other programs disturb little. Both are made in one process: what torch compiles for
`explain`, the fit does not compile again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from hydra import compose, initialize_config_module
from lightning.pytorch import Trainer

from benchmarks.tables import table
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.setup import explain, round_timing

MLP, LENET = ["model=mlp"], ["data=synthetic_images", "model=lenet"]
ALONE = ["space=papers", "search=none"]
ONE, SIDE = "executor=sequential", "executor=vectorized"
QUIET = ["logger=none", "progress=quiet", "report=false"]
CASES: dict[str, Sequence[str]] = {
    "the default run": [],
    **{
        f"{name}, {arms}, {word}": [*model, executor, *more, f"trainer.max_epochs={rounds}"]
        for name, model, most in (("MLP", MLP, 100), ("LeNet", LENET, 16))
        for arms, more, rounds in (("one arm", ALONE, most), ("27 arms", [], most // 4))
        for word, executor in (("one after another", ONE), ("side by side", SIDE))
    },
}


def measured(arguments: Sequence[str]) -> list[Any]:
    """Return what `explain` says, at least and at most, and what the fit takes; and the same of local steps."""
    fit, took = Trainer.fit, [0.0]

    def timed(*given: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return fit(*given, **options)
        finally:
            took[0] = time.process_time() - began

    with tempfile.TemporaryDirectory() as folder, initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        settings = [*QUIET, *arguments, f"folder={folder}"]
        with redirect_stdout(sys.stderr):
            told = train(compose("config", [*settings, "explain=true"]))["explanation"]
            Trainer.fit = timed  # type: ignore[method-assign]  # to measure it
            try:
                real = train(compose("config", settings))
            finally:
                Trainer.fit = fit  # type: ignore[method-assign]
    seconds, steps = told["seconds"], told["ledger"]["local_steps"]["expected"]
    done = real["ledger"]["local_steps"]
    told_range = f"{seconds['expected']:.1f} ({seconds['low']:.1f} to {seconds['high']:.1f})"
    return [told_range, f"{took[0]:.1f}", f"{seconds['expected'] / took[0]:.2f}", f"{steps / done:.2f}"]


def main() -> None:
    """Print a table."""
    round_timing.clock = explain.clock = time.process_time
    cases = {" ".join(sys.argv[1:]): sys.argv[1:]} if sys.argv[1:] else CASES
    rows = [[name, *measured(arguments)] for name, arguments in cases.items()]
    print(table(["run", "explain says, s", "the fit took, s", "ratio", "ratio of steps"], rows))


if __name__ == "__main__":
    main()
