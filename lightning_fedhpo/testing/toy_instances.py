"""An object of any tuner, search or algorithm, made for a toy run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from lightning_fedhpo.testing.contract_runs import Subject, toy_choices, toy_space

Kind = TypeVar("Kind", bound=Subject)

_PROGRAM = """
import json, sys
for trial, line in enumerate(sys.stdin):
    space = json.loads(line).get("space") or space
    end = lambda one: (one.get("options") or [one["low"], one["high"]])[trial % 2]
    print(json.dumps({part: {name: end(one) for name, one in space[part].items()} for part in space}), flush=True)
"""
_KNOWN = {
    "trajectory": [
        {"server": {"lr": 1 / number}, "client": {"lr": 0.2 / number, "momentum": 0.5}} for number in (1, 2, 3, 4)
    ],
    "command": [sys.executable, "-c", _PROGRAM],
    **{"configs": 4, "budget": 8, "max_rounds": 4, "eta": 2, "eliminations": 2},
}


def toy_instance(kind: Callable[..., Kind]) -> Kind:
    """Make an object of a class for a toy run: the toy space, few configurations, a small budget.

    >>> from lightning_fedhpo import FedEx
    >>> toy_instance(FedEx).client_names
    ('lr', 'momentum', 'batch_size', 'epochs')
    """
    space = toy_choices() if getattr(kind, "lists_values", False) else toy_space()
    known: dict[str, Any] = {"space": space, **_KNOWN}
    parameters = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in known.items() if name in parameters})
