"""Every argument of every constructor can be set from the command line without a ``+``, and has its own default."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning_fedhpo.conf
import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from lightning_fedhpo import FederatedData

FOLDER = Path(lightning_fedhpo.conf.__path__[0])
NOT_TYPED = {
    "FederatedLoop": {"algorithm", "executor", "clients", "devices", "noise", "folder"},  # groups, keys of their own
    "Trainer": {"callbacks", "logger", "enable_checkpointing"},  # `callbacks`, `logger`, `checkpoint=null`
    "ModelCheckpoint": {"train_time_interval"},  # an object
    # What the functions for its data sets give.
    "FederatedData": {"dataset", "partition", "collate_fn", "targets", "features"},
}
NEWER = {"enable_autolog_hparams", "model_registry", "save_on_exception"}
"""What the oldest supported Lightning does not have."""
CHOSEN = {
    "FederatedLoop": {"score_before"},
    "Trainer": {"max_epochs", "devices", "precision"}
    | {"num_sanity_val_steps", "enable_progress_bar", "enable_model_summary"},
    "ModelCheckpoint": {"filename", "monitor", "mode", "every_n_epochs", "enable_version_counter"},
    "CSVLogger": {"name", "version"},
    "TensorBoardLogger": {"name", "version"},
    "MLFlowLogger": {"experiment_name"},
    "synthetic_classification": {"clients", "features", "classes"},
    "synthetic_images": {"size"},
    "image_folders": {"size"},
    "Dirichlet": {"min_size"},
    "Quantity": {"min_size"},
    "Natural": {"min_size", "below"},
    "BayesianSearch": {"budget", "max_rounds", "parallel"},
    "ExternalSearch": {"budget", "max_rounds"},
    "Hyperband": {"max_rounds"},
    "Fixed": {"client", "server", "clients"},
    "SearchSpace": {"client", "server"},
    "Float": {"log"},
}
"""Arguments for which ``fedhpo`` has a default of its own."""


def sections(node: Any) -> Iterator[dict[str, Any]]:
    """Every object that a file names, and those inside it."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield node
        for one in node.values():
            yield from sections(one)


def parameters(target: str) -> dict[str, inspect.Parameter]:
    """The arguments of what a file names; of a function that hands others on to FederatedData, those too."""
    of = inspect.signature(get_object(target)).parameters
    if "more" in of and of["more"].kind is inspect.Parameter.VAR_KEYWORD:
        data = inspect.signature(FederatedData).parameters
        of = {**of, **{name: one for name, one in data.items() if name not in NOT_TYPED["FederatedData"]}, **of}
    return {name: one for name, one in of.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_argument_is_in_its_file_with_its_default(path: Path) -> None:
    content: Any = OmegaConf.to_container(OmegaConf.load(path))
    groups = {name for one in content.get("defaults", ()) if isinstance(one, dict) for name in one}
    lacking, others = [], []
    for section in sections(content):
        kind = section["_target_"].rpartition(".")[2]
        for name, one in parameters(section["_target_"]).items():
            if name not in section:
                known = NOT_TYPED.get(kind, set()) | NEWER | (groups if section is content else set())
                lacking += [] if name in known else [f"{kind}.{name}"]
                continue
            given, default = section[name], list(one.default) if isinstance(one.default, tuple) else one.default
            taken = isinstance(given, str) and ("${" in given or given == "???")
            free = taken or one.default is one.empty or name in CHOSEN.get(kind, ())
            if not free and given != default:
                others.append(f"{kind}.{name}: {given!r}, by its signature {default!r}")
    assert lacking == [], "cannot be set without +"
    assert others == []
