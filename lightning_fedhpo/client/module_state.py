"""Which tensors of a module take part in federated training, and how they are set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torchmetrics import Metric

from lightning_fedhpo.client.snapshot import Snapshot


def named_state(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield every parameter and buffer once, with its name and whether it is trainable.

    What belongs to a torchmetrics object is its own business and is left out.
    """
    metrics = tuple(f"{name}." for name, child in module.named_modules() if isinstance(child, Metric))
    for name, parameter in module.named_parameters():
        if not name.startswith(metrics):
            yield name, parameter, parameter.requires_grad
    for name, buffer in module.named_buffers():
        if not name.startswith(metrics):
            yield name, buffer, False


def slot(module: nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """Return the dict of the layer that holds a parameter or buffer, and its key there."""
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._buffers if leaf in owner._buffers else owner._parameters), leaf


def is_cache(module: nn.Module, name: str) -> bool:
    """Whether a tensor is a buffer that is not saved: its shape may change."""
    path, _, leaf = name.rpartition(".")
    return leaf in module.get_submodule(path)._non_persistent_buffers_set


def lazy_parameters(module: nn.Module) -> list[str]:
    """Name the parameters that get their shape at the first forward pass."""
    return [name for name, parameter in module.named_parameters() if is_lazy(parameter)]


@dataclass(frozen=True)
class ModuleState:
    """The module's live tensors, sorted by what happens to them.

    Attributes:
        weights: Trained, sent to the server, moved by the server's optimizer.
        buffers: Changed by training without an optimizer (batch-norm statistics, averaged target networks).
        personal: Never leave the client.
        names: The names behind ``weights``, ``buffers`` and ``personal``, in this order.
        initial_personal: What ``personal`` is on a client that has not trained yet.
        slots: The dict and key that hold each of ``buffers``, and of ``personal`` that is not trained.
        frozen: The parameters that are not trained, by name.
        snapshot: Puts back, after every job, what else the module holds.
    """

    weights: list[Tensor]
    buffers: list[Tensor]
    personal: list[Tensor]
    names: tuple[list[str], list[str], list[str]]
    initial_personal: list[Tensor]
    slots: list[tuple[dict[str, Any], str, Tensor]]
    frozen: dict[str, Tensor]
    snapshot: Snapshot

    def begin(self, *place: int) -> None:
        """Begin a job of a round, an arm and a client."""
        self.snapshot.begin(*place)

    def end(self) -> None:
        """End a job: restore what is not sent to the server."""
        self.snapshot.end()

    @torch.no_grad()
    def adopt_replaced_buffers(self) -> None:
        """Copy the values of buffers that training has replaced by new tensors into the original ones."""
        thawed = [name for name, parameter in self.frozen.items() if parameter.requires_grad]
        if thawed:
            raise ValueError(
                f"what trains must be known before the first round, but {', '.join(thawed[:3])} took gradients only "
                "later: let them require gradients from the start, and give them a learning rate of 0 until they train."
            )
        for owner, key, tensor in self.slots:
            present = owner[key]
            if present is not tensor and present is not None:
                if present.shape != tensor.shape:
                    raise ValueError(
                        f"buffer {key!r} must keep its shape while clients train, it went from {tuple(tensor.shape)} "
                        f"to {tuple(present.shape)}: register it with persistent=False if it is only a cache."
                    )
                tensor.copy_(present)
                owner[key] = tensor

    @torch.no_grad()
    def load(self, weights: Sequence[Tensor], buffers: Sequence[Tensor], personal: Sequence[Tensor] | None) -> None:
        """Copy a model into the module."""
        for owner, key, tensor in self.slots:
            owner[key] = tensor
        torch._foreach_copy_(self.weights, list(weights))
        if self.buffers:
            torch._foreach_copy_(self.buffers, list(buffers))
        if self.personal:
            torch._foreach_copy_(self.personal, list(self.initial_personal if personal is None else personal))


def module_state(
    module: nn.Module, local: Sequence[str], moving: Sequence[str], seed: int = 0, training: Sequence[str] = ()
) -> ModuleState:
    """Sort the module's tensors.

    Args:
        module: The user's module.
        local: Shell patterns, or names of layer types, of what never leaves the client.
        moving: Names of the frozen parameters and buffers that training was seen to change; the others stay as they
            are in every arm, are kept once, and are put back after every job.
        seed: For the generators that the module keeps.
        training: Names of what trains although it does not require gradients right now.
    """
    weights: dict[str, Tensor] = {}
    buffers: dict[str, Tensor] = {}
    personal: dict[str, Tensor] = {}
    trainable_names = {name for name, _, trainable in named_state(module) if trainable} | set(training)
    unmatched = set(local)
    for name, tensor, _ in named_state(module):
        trainable = name in trainable_names
        moves = trainable or name in moving
        matching = {one for one in local if moves and (fnmatchcase(name, one) or _is_in_layer(module, name, one))}
        unmatched -= matching
        if matching:
            personal[name] = tensor
        elif trainable:
            weights[name] = tensor
        elif name in moving:
            buffers[name] = tensor
    if unmatched:
        names = ", ".join(name for name, _, _ in named_state(module) if name in trainable_names)
        raise ValueError(
            f"`local` names {', '.join(map(repr, sorted(unmatched)))}, which match nothing that training moves: take "
            f"patterns of names, such as 'head.*', or types of layers, such as 'batchnorm'. It trains {names}."
        )
    if not weights:
        raise ValueError(
            "the module has no trained parameter that leaves the client: there is nothing to federate. Let some "
            f"require gradients{', or leave some out of `local`' if local else ''}."
        )
    sent = {**weights, **buffers, **personal}
    return ModuleState(
        list(weights.values()),
        list(buffers.values()),
        list(personal.values()),
        (list(weights), list(buffers), list(personal)),
        [tensor.detach().clone() for tensor in personal.values()],
        [(*slot(module, name), one) for name, one in {**buffers, **personal}.items() if name not in trainable_names],
        {n: t for n, t, _ in named_state(module) if isinstance(t, nn.Parameter) and n not in trainable_names},
        Snapshot(module, sent.values(), seed),
    )


def _is_in_layer(module: nn.Module, name: str, kind: str) -> bool:
    """Whether a tensor is inside a layer of a type, such as ``"batchnorm"``: case and leading underscores aside."""
    path = name
    while path := path.rpartition(".")[0]:
        bases = set(type(module.get_submodule(path)).__mro__) - set(nn.Module.__mro__)
        if kind.lower() in {one.__name__.lower().lstrip("_") for one in bases}:
            return True
    return False


@torch.no_grad()
def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether weights are finite, by their norms: weights whose squares overflow have diverged as well."""
    norms: Sequence[Tensor] = torch._foreach_norm(list(tensors))
    if tensors and not tensors[0].is_cpu:  # one number comes from the device, not one a tensor
        return bool(torch.stack([norm.isfinite() for norm in norms]).all())
    return all([math.isfinite(norm.item()) for norm in norms])
