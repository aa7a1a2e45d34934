"""Files that do not change while tests run are read once: the options of ``fedhpo``, and which plug-ins are installed.

Hydra reads dozens of options for every run that it composes, and a Trainer asks every installed package for callbacks.
"""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import io
from pathlib import Path
from typing import IO, Any

from omegaconf import OmegaConf

parsed = functools.cache(lambda text, load=OmegaConf.load: load(io.StringIO(text)))


def load(file: str | Path | IO[Any]) -> Any:
    text = Path(file).read_text(encoding="utf-8") if isinstance(file, str | Path) else file.read()
    return copy.deepcopy(parsed(text))


# Before Lightning is imported, which takes its own reference.
OmegaConf.load = staticmethod(load)  # type: ignore[method-assign]
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)
