"""The group in W&B of the runs of a Hydra sweep that differ only in their seed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from lightning_fedhpo.plots.sweep_data import without_seed

LONGEST = 128
"""The most characters that W&B takes for the name of a group."""


def sweep_group() -> str | None:
    """Return the group of the present run, such as ``2026-01-31/12-00-00 tuner=fedex``; None outside of a sweep.

    It is the end of the sweep's folder, then the overrides that the sweep varies.
    """
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    hydra = HydraConfig.get()
    folder = Path(hydra.sweep.dir)
    sweep = folder / "multirun.yaml"  # has the sweep's overrides; those that vary list all their values
    given = {_spelt(one) for one in OmegaConf.load(sweep).hydra.overrides.task} if sweep.is_file() else set()
    varied = [one for one in without_seed(hydra.overrides.task) if _spelt(one) not in given]
    return shortened(" ".join(["/".join(folder.absolute().parts[-2:]), *varied]))


def _spelt(override: str) -> str:
    """Return an override as it can be compared: a sweep's runs spell ``[0.8, 0.2]`` and ``true`` differently."""
    return override.replace(" ", "").lower()


def shortened(name: str) -> str:
    """Return a name that is short enough for W&B, with a hash if it was cut.

    >>> shortened("tuner=fedex"), len(shortened("x" * 200)), shortened("x" * 200) == shortened("x" * 201)
    ('tuner=fedex', 128, False)
    """
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST - len(digest) - 1]} {digest}"
