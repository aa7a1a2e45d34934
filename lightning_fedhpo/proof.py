"""Proof that every tuned hyperparameter takes effect: train a few steps with two of its values and compare.

Published systems have searched a proximal term that never reached the loss. Reading a value back shows that it was
set; that it *does* something only shows in what training leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lightning_fedhpo.types import Config

Outcome = tuple[list[Tensor], dict[str, float]]
"""The weights after some steps, and the scores."""


def same(first: Outcome, second: Outcome) -> bool:
    """Whether two trainings cannot be told apart, bit for bit.

    >>> same(([torch.ones(1)], {"loss": 1.0}), ([torch.ones(1)], {"loss": 1.0}))
    True
    """
    tensors = zip(first[0], second[0], strict=True)
    return repr(first[1]) == repr(second[1]) and all(torch.equal(one, other) for one, other in tensors)


def check_effect(name: str, values: tuple[Any, Any], base: Config, train: Callable[[Config], Outcome]) -> None:
    """Raise where two values of a hyperparameter lead to the very same client.

    Args:
        name: The hyperparameter.
        values: Two values that ought to differ in effect.
        base: The configuration around them.
        train: Trains a client for a few steps from the same start with the same randomness.
    """
    if same(*(train({**base, name: value}) for value in values)):
        raise ValueError(
            f"hyperparameter {name!r} takes no effect: a client trained with {values[0]!r} is the same, bit for bit, "
            f"as one trained with {values[1]!r}. It may be read only when the module is built, or be overwritten. Tune "
            "what is used while training, or switch the proof off with FederatedLoop(verify=False)."
        )
