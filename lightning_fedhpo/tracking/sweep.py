"""What a job of a Hydra sweep was told, and what sets it apart from the sweep's other jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

LONGEST = 128
"""How many characters of a group's name W&B takes."""


def but_seed(overrides: Iterable[object]) -> list[str]:
    """Return what a run was told beside its seed.

    >>> but_seed(["tuner=fedex", "seed=3", "data.seed=1"])
    ['tuner=fedex', 'data.seed=1']
    """
    return [one for one in map(str, overrides) if not one.lstrip("+").startswith("seed=")]


def sweep_group() -> str | None:
    """Return a name for the jobs of this sweep that differ from this one in their seed alone; None outside of a sweep.

    It is the end of the sweep's folder and what the sweep varies, as in ``2026-01-31/12-00-00 tuner=fedex``.
    """
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    hydra = HydraConfig.get()
    folder = Path(hydra.sweep.dir)
    sweep = folder / "multirun.yaml"  # what was asked for, where values that vary still stand side by side
    asked = OmegaConf.load(sweep).hydra.overrides.task if sweep.is_file() else []
    varied = [one for one in but_seed(hydra.overrides.task) if one not in asked]
    return shortened(" ".join(["/".join(folder.absolute().parts[-2:]), *varied]))


def shortened(name: str) -> str:
    """Return a name that W&B takes; names that differ still differ.

    >>> shortened("tuner=fedex"), len(shortened("x" * 200)), shortened("x" * 200) == shortened("x" * 201)
    ('tuner=fedex', 128, False)
    """
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST - len(digest) - 1]} {digest}"
