"""The state of a run in a checkpoint: saved, checked, restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.nn.parameter import is_lazy

from lightning_fedhpo.run import checkpoint_file, identity

if TYPE_CHECKING:
    from lightning_fedhpo.setup.session import Session


def state_of(session: Session) -> dict[str, Any]:
    """Return everything that affects the next round, and everything that was written down."""
    state = session.bench.state
    return {
        "identity": session.identity,
        "aggregating": session.aggregating,
        "names": list(state.names[0]),
        **(dry_run_findings(session) if session.arms else {}),
        "initial_personal": list(state.initial_personal),
        "population": session.arms.state_dict(),
        "records": session.records.state_dict(),
    }


def dry_run_findings(session: Session) -> dict[str, Any]:
    """Return the findings of the dry run, which a resumed run takes instead of its own."""
    return {"moving": session.moving, "vectorized_matches": session.executor.vectorized_matches}


@torch.no_grad()
def restore(session: Session) -> None:
    """Take up the run of a checkpoint."""
    saved, state = session.saved, session.bench.state
    if list(saved["names"]) != state.names[0]:
        raise ValueError(
            f"the checkpoint's model trains {', '.join(saved['names'])}, this one {', '.join(state.names[0])}: resume "
            "with the module the run began with."
        )
    for tensor, kept in zip(state.initial_personal, saved["initial_personal"], strict=True):
        tensor.copy_(kept)
    session.arms.load_state_dict(saved["population"], state)
    session.records.load_state_dict(saved["records"])


def put_best_model(saved: Mapping[str, Any], session: Session) -> None:
    """Replace a client's weights in a checkpoint by those of the best arm."""
    arm, state = session.arms.best, session.bench.state
    names = [name for group in state.names for name in group]
    for name, tensor in zip(names, [*arm.weights, *arm.buffers, *state.initial_personal], strict=True):
        if name in saved["state_dict"]:
            saved["state_dict"][name] = tensor.detach().clone()


def read(
    session: Session, state_key: str, load: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any
) -> Any:
    """Load a checkpoint, and refuse one that the run cannot go on from."""
    root = session.trainer.default_root_dir
    checkpoint = checkpoint_file.read(root, load, path, *arguments, **options)
    states = checkpoint.get("callbacks") if isinstance(checkpoint, Mapping) else None
    if not states or not states.get(state_key):
        what = "holds weights only" if states is None else "was not written by a federated run"
        raise MisconfigurationException(
            f"{checkpoint_file.refusal(path, what, root)} To start a run from trained weights, load them into the "
            "module before `fit`."
        )
    if (lost_states := checkpoint_file.lost_states(checkpoint, root)) is not None:
        raise MisconfigurationException(checkpoint_file.refusal(path, lost_states, root))
    learning = session.tuner, session.search
    lost = [part for part in learning if part.state_dict() and part.state_key not in states]
    present = identity.of_run(session) | identity.of_module(session.module, session.tuned_names)
    identity.check(states[state_key]["identity"], present, session.options.on_difference, lost)
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
