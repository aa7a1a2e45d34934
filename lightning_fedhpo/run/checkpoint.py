"""The state of a run in a checkpoint: saved, checked, restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.nn.parameter import is_lazy

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.module_state import ModuleState
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.run import checkpoint_file, identity
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.run.state import RunState

FORMAT = 1
"""The form of a run's state in a checkpoint; a change that an earlier version's state does not survive raises it."""


def state_of(state: RunState, executor: Executor) -> dict[str, Any]:
    """Return everything that affects the next round, and everything that was written down."""
    tensors = executor.bench.state
    return {
        "format": FORMAT,
        "identity": state.identity,
        "aggregating": state.phase == "aggregation",
        "names": list(tensors.names[0]),
        **(dry_run_findings(state, executor) if state.arms else {}),
        "initial_personal": list(tensors.initial_personal),
        "population": state.arms.state_dict(),
        "records": state.records.state_dict(),
    }


def dry_run_findings(state: RunState, executor: Executor) -> dict[str, Any]:
    """Return the findings of the dry run, which a resumed run takes instead of its own."""
    return {"moving": state.moving, "vectorized_matches": executor.vectorized_matches}


@torch.no_grad()
def restore(saved: Mapping[str, Any], state: RunState, tensors: ModuleState) -> None:
    """Take up the run of a checkpoint."""
    if list(saved["names"]) != tensors.names[0]:
        raise ValueError(
            f"the checkpoint's model trains {', '.join(saved['names'])}, this one {', '.join(tensors.names[0])}: "
            "resume with the module the run began with."
        )
    for tensor, kept in zip(tensors.initial_personal, saved["initial_personal"], strict=True):
        tensor.copy_(kept)
    state.arms.load_state_dict(saved["population"], tensors)
    state.records.load_state_dict(saved["records"])


def put_best_model(saved: Mapping[str, Any], arm: Arm, tensors: ModuleState) -> None:
    """Replace a client's weights in a checkpoint by those of the best arm."""
    names = [name for group in tensors.names for name in group]
    for name, tensor in zip(names, [*arm.weights, *arm.buffers, *tensors.initial_personal], strict=True):
        if name in saved["state_dict"]:
            saved["state_dict"][name] = tensor.detach().clone()


def read(
    parts: RunParts, state_key: str, load: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any
) -> Any:
    """Load a checkpoint, and refuse one that the run cannot go on from."""
    root = parts.trainer.default_root_dir
    checkpoint = checkpoint_file.read(root, load, path, *arguments, **options)
    states = checkpoint.get("callbacks") if isinstance(checkpoint, Mapping) else None
    if not states or not states.get(state_key):
        what = "holds weights only" if states is None else "was not written by a federated run"
        raise MisconfigurationException(
            f"{checkpoint_file.refusal(path, what, root)} To start a run from trained weights, load them into the "
            "module before `fit`."
        )
    if states[state_key].get("format") != FORMAT:
        what = "was written by another version of lightning-fedhpo"
        raise MisconfigurationException(checkpoint_file.refusal(path, what, root))
    if (lost_states := checkpoint_file.lost_states(checkpoint, root)) is not None:
        raise MisconfigurationException(checkpoint_file.refusal(path, lost_states, root))
    learning = parts.tuner, parts.search
    lost = [part for part in learning if part.state_dict() and part.state_key not in states]
    present = parts.identity() | identity.of_module(parts.module, parts.tuned_names)
    identity.check(states[state_key]["identity"], present, parts.options.on_difference, lost)
    check_whole(states[state_key]["aggregating"])
    return checkpoint


def check_whole(aggregating: bool) -> None:
    """Refuse to go on from the middle of an aggregation."""
    if aggregating:
        raise RuntimeError(
            "the run was interrupted while the server aggregated a round, and cannot go on from there: resume with "
            "`ckpt_path` from a checkpoint before that."
        )


def check_tensors(saved: Mapping[str, Any], module: LightningModule) -> None:
    """Refuse a checkpoint of another module, which torch would load in part before it complains."""
    own = module.state_dict()
    wrong = [f"{name} is missing" for name in own if name not in saved]
    wrong += [f"{name} is not in the module" for name in saved if name not in own]
    wrong += [
        f"{name} has shape {tuple(saved[name].shape)} there, {tuple(tensor.shape)} here"
        for name, tensor in own.items()
        if name in saved and isinstance(tensor, Tensor) and not is_lazy(tensor) and saved[name].shape != tensor.shape
    ]
    if wrong and module.strict_loading:
        more = "; ..." if len(wrong) > 5 else ""
        raise ValueError(
            f"the checkpoint is of another module than this {type(module).__name__}: {'; '.join(wrong[:5])}{more}. "
            "Resume with the module the run began with."
        )
