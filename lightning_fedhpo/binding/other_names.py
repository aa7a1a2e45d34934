"""Which name a user may have meant: a module often copies its ``hparams`` to where they are used when it is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from lightning_fedhpo.arguments import is_number
from lightning_fedhpo.binding.attributes import dropouts
from lightning_fedhpo.binding.param_groups import BETAS

_DERIVED = ("params", "initial_lr", "min_lr")


def names_of_value(
    module: nn.Module, groups: Sequence[Mapping[str, Any]], settings: Sequence[str], name: str, value: Any
) -> list[str]:
    """Return the names by which a value of ``hparams`` or an attribute is tuned where it is used; [] where none is.

    ``groups`` are the optimizers' parameter groups, ``settings`` the names of local loop and algorithm. An option of
    the same name goes before others of the same value; a zero says nothing by its value.

    >>> module, groups = nn.Linear(1, 1), [{"lr": 0.1, "weight_decay": 0.01}, {"lr": 0.3, "weight_decay": 0.01}]
    >>> names_of_value(module, groups, [], "decay", 0.01), names_of_value(module, groups, [], "head_lr", 0.3)
    (['weight_decay'], ['lr.1'])
    >>> names_of_value(module, groups, [], "backbone_lr", 0.1)
    ['lr', 'lr.0']
    """
    if name in settings:
        return [name]
    if not is_number(value):
        return []
    own = [dict(_options(group)) for group in groups]
    keys = list(dict.fromkeys(key for group in own for key, held in group.items() if held == value))
    keys = [key for key in keys if key == name] or (keys if value else [])
    found = []
    for key in keys:
        having = [number for number, group in enumerate(own) if key in group]
        equal = [number for number in having if own[number][key] == value]
        found += [key] if having[0] in equal else []  # the others keep their ratio to the first
        found += [f"{key}.{number}" for number in equal] if equal != having else []
    layers = [getattr(layer, attribute) for layer, attribute in dropouts(module)]
    return found + (["dropout"] if value and value in layers else [])


def _options(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what is tuned by name; under a schedule with a highest rate, that is the rate."""
    for key, held in group.items():
        if key == "betas":
            yield from zip(BETAS, held, strict=True)
        elif key == "lr":
            if "max_lr" not in group:
                yield key, group.get("initial_lr", held)
        elif key not in _DERIVED and is_number(held):
            yield key, held


def listed(names: Sequence[str]) -> str:
    """Return names as alternatives.

    >>> listed(["lr", "lr.0"])
    '`lr` or `lr.0`'
    """
    return " or ".join(f"`{name}`" for name in names)
