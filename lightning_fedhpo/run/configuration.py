"""The settings of a run that was made by a script, in the shape of ``config.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_fedhpo.run.identity import checkpoint_value
from lightning_fedhpo.run.run_parts import LOOP, RunParts
from lightning_fedhpo.searches.base import NoSearch
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import Untuned


def configuration(parts: RunParts) -> dict[str, Any]:
    """Return a section for each part of a run: its class as ``_target_``, and what of its settings the run knows."""
    known, data, module = parts.identity(), parts.data, parts.module
    spaces = parts.spaces
    federation = {"clients": len(data), "partition": repr(data.partition), "seed": data.seed, **known["data"]}
    loop = {name: known[name] for name in (*LOOP, "clients", "devices", "noise")}
    found: dict[str, Any] = checkpoint_value(
        {
            "data": {"_target_": _target(data), **federation, "fingerprint": known["federation"]},
            "model": {"_target_": _target(module), **module.hparams_initial},
            "algorithm": _part(parts.algorithm, known["algorithm"]),
            "space": _space(spaces[0]) if spaces else None,
            "search": None if isinstance(parts.search, NoSearch) else _part(parts.search, known["search"]),
            "tuner": None if isinstance(parts.tuner, Untuned) else _part(parts.tuner, known["tuner"]),
            "trainer": _part(parts.trainer, {"max_epochs": parts.trainer.max_epochs, **known["trainer"]}),
            "seed": parts.options.seed,
            "fed": {"_target_": _target(parts.options), **loop},
        }
    )
    return found


def _target(one: object) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"


def _part(one: object, known: Mapping[str, Any]) -> dict[str, Any]:
    return {"_target_": _target(one), **{name: known[name] for name in known if name not in ("name", "space")}}


def _space(space: SearchSpace) -> dict[str, Any]:
    """Return a space with its dimensions by the names of their classes."""
    return {
        part: {name: {"_target_": _target(one), **vars(one)} for name, one in space.part(part).items()}
        for part in ("client", "server")
    }
