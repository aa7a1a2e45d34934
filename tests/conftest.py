"""Files that do not change while tests run are read once: the options of ``fedhpo``, and which packages are installed.

Hydra reads dozens of options for every run that it composes, a Trainer asks every installed package for callbacks, and
an exported app looks for the package of each import. What is imported stays, so the collector does not look at it.
"""

from __future__ import annotations

import copy
import functools
import gc
import importlib.metadata
import io
from pathlib import Path
from typing import IO, Any

from omegaconf import OmegaConf

gc.disable()  # while files are imported
parsed = functools.cache(lambda text, load=OmegaConf.load: load(io.StringIO(text)))


def load(file: str | Path | IO[Any]) -> Any:
    text = Path(file).read_text(encoding="utf-8") if isinstance(file, str | Path) else file.read()
    return copy.deepcopy(parsed(text))


# Before Lightning is imported, which takes its own reference.
OmegaConf.load = staticmethod(load)  # type: ignore[method-assign]
for listing in ("entry_points", "packages_distributions"):
    setattr(importlib.metadata, listing, functools.cache(getattr(importlib.metadata, listing)))


def pytest_collection_finish() -> None:
    """Let the collector look only at what tests make."""
    gc.freeze()
    gc.enable()
