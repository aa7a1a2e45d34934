"""Computing without gradients, for what is called so often that ``torch.no_grad`` itself would take a part of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def gradless(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function compute without gradients, as ``torch.no_grad`` does; not for generators.

    >>> @gradless
    ... def doubled(tensor):
    ...     return 2 * tensor
    >>> doubled(torch.ones(1, requires_grad=True)).requires_grad, torch.is_grad_enabled()
    (False, True)
    """

    @wraps(function)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            return function(*args, **kwargs)
        finally:
            torch._C._set_grad_enabled(before)

    return within
