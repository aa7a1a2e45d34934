"""The command ``fedhpo-export``: what a run has found, as a Flower app."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lightning_fedhpo.cli.errors import failed, one_line
from lightning_fedhpo.export import write_flower_app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fedhpo-export``."""
    parser = argparse.ArgumentParser(prog="fedhpo-export", description="Write an app that trains with what was found.")
    parser.add_argument("kind", choices=["flower"], help="a Flower app")
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("folder", type=Path, help="where the app goes: a new folder, or an empty one")
    given = parser.parse_args(arguments)
    run, folder = given.run.absolute(), given.folder.absolute()
    try:
        app = write_flower_app(run, folder)
    except Exception as error:
        return failed("fedhpo-export", error, one_line(error, run))
    print("\n".join([f"A Flower app is in {folder}. To simulate it:", f"  {app.command}", *app.notes]))
    if find_spec("flwr") is None:
        print("Flower is not installed here: pip install 'lightning-fedhpo[flower]'.")
    return 0
