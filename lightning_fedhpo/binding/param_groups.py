"""How one tuned value is divided among an optimizer's parameter groups; `Binding` writes it.

Each group keeps its author's ratio, a group whose own value is 0 keeps 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from lightning_fedhpo.arguments import is_number, number

BETAS = {"beta1": 0, "beta2": 1}
"""Names of the two values of ``betas``."""

_AMOUNTS = ("lr", "weight_decay")
_NOT_NEGATIVE = (*_AMOUNTS, "max_lr", "momentum", "eps", "lr_decay", "alpha", "rho")


def groups_with_shares(
    optimizers: Sequence[Optimizer], own: Sequence[Sequence[Mapping[str, Any]]], name: str, number: int | None
) -> list[tuple[dict[str, Any], float]]:
    """Return the groups that a name reaches, each with its share of the value.

    ``own`` are the groups as their author made them, ``number`` is the one that is meant, or None for all.
    """
    key = "betas" if name in BETAS else name
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    if number is not None:
        return [(groups[number], 1.0)] if number < len(groups) and key in groups[number] else []
    if key == "params":
        return []
    authors = [group for several in own for group in several]
    pairs = [(group, author) for group, author in zip(groups, authors, strict=True) if key in group]
    rates = [_own_rate(author, name) for _, author in pairs]
    first = next((rate for rate in rates if rate), 0.0)
    return [(group, _share(name, rate, first)) for (group, _), rate in zip(pairs, rates, strict=True)]


def group_of(name: str) -> tuple[str, int | None]:
    """Split a name into that of an option and the group's number, which is None if there is none.

    >>> group_of("lr.1"), group_of("lr")
    (('lr', 1), ('lr', None))
    """
    general, _, number = name.partition(".")
    return (general, int(number)) if number.isdigit() else (name, None)


def _own_rate(group: Mapping[str, Any], name: str) -> float:
    """Return what the author gave a group, as a number; 1 for what is none."""
    if name in BETAS:
        return float(group["betas"][BETAS[name]])
    value = group.get("initial_lr", group["lr"]) if name == "lr" else group[name]
    return float(value) if is_number(value) or isinstance(value, torch.Tensor) else 1.0


def _share(name: str, own: float, first: float) -> float:
    """Return how much of a value a group gets."""
    if not first or own == first:
        return 1.0
    return own / first if name in _AMOUNTS or not own else 1.0


def checked(name: str, value: Any) -> Any:
    """Return an optimizer's value, or raise if it is not valid."""
    general = group_of(name)[0]
    if general in BETAS:
        return number(name, value, low=0, below=1)
    if name == "lr":  # of all groups; one group may be frozen
        return number(name, value, above=0, why="with 0 nothing is learned")
    if general in _NOT_NEGATIVE:
        return number(name, value, low=0, high=1 if general == "momentum" else None)
    return value
