"""Folders of runs that began elsewhere: their settings are data until the user trusts them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.utils import get_object
from omegaconf import OmegaConf

OURS = ("lightning_fedhpo", "lightning", "torch")
"""The packages whose classes a stranger's settings may name without being shown."""


def check_trusted(folder: Path, began: str, arguments: Sequence[str]) -> None:
    """Refuse the arguments that a folder's record brings, unless its run began in the present folder.

    Args:
        folder: The folder of a run or a sweep.
        began: Where its run began, as the record has it.
        arguments: The options and overrides that it began with.
    """
    if began == os.getcwd():
        return
    options = [one for one in arguments if one[:1] == "-"]
    named = sorted({*_targets_in_overrides(arguments), *_targets_in_files(options)})
    lines = [f"builds {name}" for name in named if not is_ours(name)]
    lines = lines or [f"builds nothing outside {', '.join(OURS)}"]
    lines += [f"imports modules from {began}"] if Path(began).is_dir() else []
    lines += [f"has {one}" for one in arguments if one in options or one.lstrip("+~").startswith("hydra")]
    told = "".join(f"\n- {line if line.isprintable() else repr(line)}" for line in lines)
    raise ValueError(
        f"{folder} was written by a run that began elsewhere, so its settings are those of others. With them, this "
        f"command{told}\nAdd trust=true if you trust whoever wrote them; or copy the checkpoint out of that folder and "
        "give your own settings."
    )


def is_ours(name: str) -> bool:
    """Return whether a ``_target_`` is a class of ours, Lightning's or torch's, and not what they import.

    >>> is_ours("lightning.pytorch.callbacks.EarlyStopping"), is_ours("evil.C")
    (True, False)
    >>> is_ours("torch.os.system"), is_ours("torch.load"), is_ours("lightning_fedhpo.cli.main.os.system")
    (False, False, False)
    """
    if name.partition(".")[0] not in OURS:
        return False
    try:
        found = get_object(name)
    except Exception:  # any that an import raises
        return False
    package = str(getattr(found, "__module__", "")).partition(".")[0]
    return package == OURS[0] or (package in OURS and isinstance(found, type))


def _targets_in_overrides(overrides: Sequence[str]) -> Iterator[str]:
    """Return the targets in overrides, with all values of those that a sweep varies."""
    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
            values = list(override.sweep_iterator()) if override.is_sweep_override() else [override.value()]
        except HydraException:
            values = []
        yield from _targets_in({text.lstrip("+~").partition("=")[0]: values})


def _targets_in_files(options: Sequence[str]) -> Iterator[str]:
    """Return the targets in the files of folders with options."""
    for option in options:
        for file in sorted(Path(option.partition("=")[2]).rglob("*.y*ml")):
            try:
                yield from _targets_in(OmegaConf.to_container(OmegaConf.load(file), resolve=False))
            except Exception:  # any that a stranger's file raises: nobody knows what it names
                yield str(file)


def _targets_in(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _targets_in(item, str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _targets_in(item, key)
    elif key.rpartition(".")[2] == "_target_":
        yield str(value)
