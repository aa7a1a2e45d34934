"""Which tensors of a module take part in federated training, and how they are set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torchmetrics import Metric


def named_state(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield every parameter and buffer once, with its name and whether it is trained.

    What belongs to a torchmetrics object is its own business and is left out.
    """
    metrics = tuple(f"{name}." for name, child in module.named_modules() if isinstance(child, Metric))
    for name, parameter in module.named_parameters():
        if not name.startswith(metrics):
            yield name, parameter, parameter.requires_grad
    for name, buffer in module.named_buffers():
        if not name.startswith(metrics):
            yield name, buffer, False


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
    """

    weights: list[Tensor]
    buffers: list[Tensor]
    personal: list[Tensor]
    names: tuple[list[str], list[str], list[str]]
    initial_personal: list[Tensor]

    @torch.no_grad()
    def load(self, weights: Sequence[Tensor], buffers: Sequence[Tensor], personal: Sequence[Tensor] | None) -> None:
        """Copy a model into the module."""
        torch._foreach_copy_(self.weights, list(weights))
        if self.buffers:
            torch._foreach_copy_(self.buffers, list(buffers))
        if self.personal:
            torch._foreach_copy_(self.personal, list(self.initial_personal if personal is None else personal))


def module_state(module: nn.Module, local: Sequence[str], moving: Sequence[str]) -> ModuleState:
    """Sort the module's tensors.

    Args:
        module: The user's module.
        local: Shell patterns of what never leaves the client.
        moving: Names of the frozen parameters and buffers that training was seen to change; the others stay as they
            are in every arm and are kept once.
    """
    weights: dict[str, Tensor] = {}
    buffers: dict[str, Tensor] = {}
    personal: dict[str, Tensor] = {}
    unmatched = set(local)
    for name, tensor, trained in named_state(module):
        matching = {pattern for pattern in local if fnmatchcase(name, pattern)}
        unmatched -= matching
        if matching and (trained or name in moving):
            personal[name] = tensor
        elif trained:
            weights[name] = tensor
        elif name in moving:
            buffers[name] = tensor
    if unmatched:
        names = ", ".join(name for name, _, _ in named_state(module))
        raise ValueError(f"`local` names {', '.join(sorted(unmatched))}, which match nothing in the module: {names}.")
    if not weights:
        raise ValueError("the module has no trained parameter that leaves the client: there is nothing to federate.")
    return ModuleState(
        list(weights.values()),
        list(buffers.values()),
        list(personal.values()),
        (list(weights), list(buffers), list(personal)),
        [tensor.detach().clone() for tensor in personal.values()],
    )
