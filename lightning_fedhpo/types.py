"""The frozen data that moves between the stages of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

Config = Mapping[str, Any]
"""Hyperparameter names and their values: one point of the client or of the server space."""


def plain(config: Config) -> dict[str, Any]:
    """Return a configuration without numpy's numbers, which a safely loaded checkpoint cannot hold.

    >>> plain({"lr": np.float64(0.5), "epochs": 2})
    {'lr': 0.5, 'epochs': 2}
    """
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in config.items()}


SPLITS = ("train", "val", "test")
"""A client's own parts: T, V and E in the papers."""


@dataclass(frozen=True)
class Suggestion:
    """The configuration a tuner gives to one client of a cohort, and its place among the tuner's own.

    ``weight`` multiplies the client's weight in the aggregate.
    """

    config: Config
    index: int | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Job:
    """One client's work in one arm in one round.

    Where devices are simulated, ``seconds`` is how long it takes, and ``lost`` why it does not reach the server.
    """

    round: int
    arm: int
    client: int
    config: Config
    index: int | None = None
    weight: float = 1.0
    seconds: float | None = None
    lost: str | None = None


@dataclass(frozen=True)
class RoundContext:
    """The values that are fixed during a round.

    Attributes:
        needs_before: Whether clients are scored before they train, too.
        sign: 1 where smaller scores are better, -1 where larger ones are: ``sign * score`` is a loss.
    """

    round: int
    seed: int
    needs_before: bool
    sign: float = 1.0


class StackedModel(list[Tensor]):
    """A client's model that is a row of stacked tensors, as views.

    An arm sums up the rows of one stack together.

    >>> import torch
    >>> StackedModel([torch.tensor([[1.0, 2.0], [3.0, 4.0]])], row=1)
    [tensor([3., 4.])]
    """

    def __init__(self, stack: Sequence[Tensor], row: int) -> None:
        super().__init__([tensor[row] for tensor in stack])
        self.stack, self.row = stack, row

    def clear(self) -> None:
        """Let go of the stack, too."""
        super().clear()
        self.stack = ()


@dataclass(frozen=True)
class ClientResult:
    """The result of a job.

    ``weights``, ``buffers`` and ``personal`` are the executor's own tensors: they hold until the next result is asked
    for, so whoever wants to keep them copies them. ``received`` is what the tuner has kept of them. ``lr_sums`` has
    for each weight the sum of its steps' learning rates, where the algorithm needs it; ``handed`` has the tensors
    that its local training hands to :meth:`Algorithm.receive`. ``least_cosine`` is the least cosine between a step's
    gradient and the way from the present weights back to those received, where the tuner needs it and there is a
    second step.
    """

    job: Job
    weights: Sequence[Tensor]
    buffers: Sequence[Tensor]
    personal: Sequence[Tensor]
    used: Config
    train_examples: int
    val_examples: int
    local_steps: int
    examples: int
    evaluations: int
    score_before: float | None
    score_after: float | None
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    train: Mapping[str, float] = field(default_factory=dict)
    finite: bool = True
    error: str | None = None
    received: Mapping[str, Any] | None = None
    lr_sums: Sequence[float] = ()
    least_cosine: float | None = None
    handed: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)

    def release(self) -> None:
        """Let go of the model. Rounds keep their results, and memory must not grow with them."""
        for part in (self.weights, self.buffers, self.personal, self.handed):
            if isinstance(part, (list, dict)):
                part.clear()
