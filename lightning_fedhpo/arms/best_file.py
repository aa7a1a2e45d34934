"""``best.yaml``: the hyperparameters that a run has found, and what there is to know of them.

``client``, ``server`` and, where each client has its own, ``clients`` are the values; all else is for a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lightning_fedhpo.arguments import did_you_mean, shown
from lightning_fedhpo.files.folders import replacing
from lightning_fedhpo.files.reading import read_yaml

FILE = "best.yaml"
VALUES = ("client", "server", "clients")
SECTIONS = (
    *VALUES,
    *("trajectory", "score", "test", "algorithm", "search", "tuner", "target", "schedules", "seed", "cohort"),
    *("federation", "budget", "retraining"),
)
HEAD = """\
# What a run has found. To train with exactly these values:
#   Trainer(callbacks=[FederatedLoop(...), Fixed("{name}")])
#   fedhpo search=none tuner=fixed tuner.file={name}
"""


def write_best(path: str | PathLike[str], best: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Write ``{"client": ..., "server": ...}``, and what is known of these values below them."""
    text = OmegaConf.to_yaml(OmegaConf.create({**best, **known}))
    with replacing(path) as file:
        file.write(HEAD.format(name=Path(path).name) + text)


def read_best(path: str | PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write_best` has written, or raise if its values are of another kind."""
    place = Path(path)
    if not place.is_file():
        raise ValueError(f"`file` must be a run's best.yaml, and there is no file at {place}.")
    found = read_yaml(place)
    if not isinstance(found, dict):
        raise ValueError(f"{place} must have the sections client and server, got {shown(found)}.")
    if foreign := [name for name in found if name not in SECTIONS]:
        raise ValueError(
            f"{place} has a section {foreign[0]!r} that means nothing: there are {', '.join(SECTIONS)}."
            f"{did_you_mean(str(foreign[0]), SECTIONS)}"
        )
    if lacking := [name for name in VALUES[:2] if name not in found]:
        raise ValueError(
            f"{place} has no section {' and no section '.join(map(repr, lacking))}, such as `{lacking[0]}: {{}}` for "
            "one without values of its own."
        )
    for name in VALUES:
        section = found.get(name, {})
        parts = section.values() if name == "clients" and isinstance(section, dict) else [section]
        if not isinstance(section, dict) or not all(isinstance(part, dict) for part in parts):
            what = "clients' values by number, each by name" if name == "clients" else "values by name"
            raise ValueError(f"the section {name!r} of {place} must have {what}, got {shown(section)}.")
        for key, value in (item for part in parts for item in part.items()):
            if isinstance(value, dict):
                raise ValueError(f"{key!r} in the section {name!r} of {place} must be one value, got {shown(value)}.")
    return found
