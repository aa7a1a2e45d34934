"""What a tick of training computes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lightning_fedhpo.executors.vectorized.optimizers import Values


@dataclass(frozen=True, kw_only=True)
class TickInputs:
    """The inputs of a traced tick, in their order; the first dimension is the lane, but for ``columns``.

    Attributes:
        weights: The models in training.
        state: The optimizer's tensors for each weight.
        sums: Sums of what is logged.
        last: Values of the last batch, of what is logged by step and by epoch.
        received: The models that clients received, if the algorithm adds to gradients.
        carried: What clients carry for the algorithm.
        values: The coefficients of each parameter group's step: numbers that are known, or one for each lane.
        own: The hyperparameters that the module reads.
        algorithm: Those that the algorithm reads.
        opens: Whether the piece is the first of its batch.
        sizes: How many examples the piece's batch has.
        dropout: The job's key, the step's number and the piece's offset; empty without dropout.
        columns: The data.
        rows: The rows of the piece's examples.
        shares: What each weighs in its batch's mean.
    """

    weights: list[Tensor]
    state: list[list[Tensor]]
    sums: list[Tensor]
    last: list[Tensor]
    received: list[Tensor]
    carried: list[Tensor]
    values: Sequence[Values]
    own: list[Tensor]
    algorithm: list[Tensor]
    opens: Tensor
    sizes: Tensor
    dropout: list[Tensor]
    columns: list[Tensor]
    rows: Tensor
    shares: Tensor
