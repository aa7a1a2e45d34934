"""Proof that every tuned hyperparameter takes effect: train with two of its values and compare.

Published systems have searched a proximal term that never reached the loss. Reading a value back shows that it was
set; that it *does* something only shows in what training leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.module_state import all_finite
from lightning_fedhpo.types import ClientResult, Config, Job

Outcome = tuple[list[Tensor], dict[str, float]]
"""What some steps have trained, and the scores."""


def same(first: Outcome, second: Outcome) -> bool:
    """Whether two trainings cannot be told apart, bit for bit; nan counts as equal to nan.

    >>> same(([torch.ones(1)], {"loss": 1.0}), ([torch.ones(1)], {"loss": 1.0}))
    True
    """
    tensors = zip(first[0], second[0], strict=True)
    return repr(first[1]) == repr(second[1]) and all(equal(one, other) for one, other in tensors)


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors cannot be told apart; nan counts as equal to nan."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def check_effect(
    name: str,
    values: tuple[Any, Any],
    bases: Sequence[Config],
    train: Callable[[Config, bool], Outcome | None],
    way_out: str,
) -> None:
    """Raise where two values of a hyperparameter lead to the very same client.

    A few steps show most hyperparameters. Some show only beside certain values of others (``nesterov`` beside a
    momentum), or late (a learning rate whose warm-up begins at zero): one is refused only when it shows neither beside
    any of several configurations nor in full trainings.

    Args:
        name: The hyperparameter.
        values: Two values that ought to differ in effect.
        bases: Configurations around them, the likeliest to show an effect first.
        train: Trains a client, a few steps or in full, from the same start with the same randomness; None if it fails.
        way_out: Ends the message.
    """
    alike = False
    for full in (False, True):
        for base in [base for place, base in enumerate(bases) if base not in bases[:place]]:
            first, second = (train({**base, name: value}, full) for value in values)
            if first is None or second is None:
                continue
            if not same(first, second):
                return
            alike = alike or all_finite(first[0])  # two that diverge are alike whatever is tuned
    if not alike:
        return
    raise ValueError(
        f"hyperparameter {name!r} takes no effect: a client trained with {values[0]!r} is the same, bit for bit, "
        f"as one trained with {values[1]!r}. {way_out}"
    )


SERVER_ROUNDS = 3
"""Aggregations in which a server hyperparameter has to show: momentum shows in the second, decay too."""
SERVER_CLIENTS = 5
"""Clients of each of them, from the smallest to the largest: a hyperparameter may act on their weights."""


def check_server_effect(algorithm: Algorithm, name: str, values: tuple[Any, Any], weights: Sequence[Tensor]) -> None:
    """Raise where two values of a server hyperparameter lead to the very same model, from the same clients' models."""
    arms = [Arm(0, algorithm, {name: value}, weights) for value in values]
    draw = torch.Generator().manual_seed(0)
    by_size = np.argsort(algorithm.sizes, kind="stable")
    clients = by_size[np.linspace(0, len(by_size) - 1, min(SERVER_CLIENTS, len(by_size))).round().astype(int)].tolist()
    for number in range(SERVER_ROUNDS):
        for client in clients:
            result = _drawn_result(algorithm, Job(number, 0, client, {}), weights, draw)
            for arm in arms:
                if algorithm.overrides_local_training:  # only its own training knows what it hands to `receive`
                    Algorithm.receive(algorithm, arm, result)
                else:
                    algorithm.receive(arm, result)
        for arm in arms:
            algorithm.aggregate(arm)
        if not all(equal(one, other) for one, other in zip(arms[0].weights, arms[1].weights, strict=True)):
            return
    raise ValueError(
        f"server hyperparameter {name!r} takes no effect: {SERVER_ROUNDS} aggregations of "
        f"{type(algorithm).__name__} with {values[0]!r} give the same model, bit for bit, as with {values[1]!r}. "
        "Return it from `server_options`, read it from `arm.server`, or leave it out of the space."
    )


def _drawn_result(algorithm: Algorithm, job: Job, weights: Sequence[Tensor], draw: torch.Generator) -> ClientResult:
    model = [w.detach() + 0.1 * torch.randn(w.shape, generator=draw).to(w) for w in weights]
    examples, sums = int(algorithm.sizes[job.client]), [1.0] * len(model)
    used = dict(algorithm.client)
    return ClientResult(job, model, (), (), used, examples, 0, 1, examples, 0, None, None, lr_sums=sums)
