"""Copies of states."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch


def copied(state: Any) -> Any:
    """Copy the tensors in a state, as deep as its containers go: an optimizer's next step changes them in place."""
    if isinstance(state, dict):
        copy = {key: copied(value) for key, value in state.items()}
        return defaultdict(state.default_factory, copy) if isinstance(state, defaultdict) else copy
    if type(state) in (list, tuple):
        return type(state)(map(copied, state))
    return state.clone() if isinstance(state, torch.Tensor) else state
