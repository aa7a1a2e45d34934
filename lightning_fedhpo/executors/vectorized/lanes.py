"""The tensors of lanes and of models that are computed together: a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.local_run import Method
from lightning_fedhpo.executors.vectorized.programs import Programs
from lightning_fedhpo.types import Job


class Rows:
    """Tensors with a row for each of several models.

    >>> rows = Rows([torch.zeros(2, 3)])
    >>> rows.load([1], [[torch.ones(3)]])
    >>> rows.tensors[0].tolist(), rows.of(1)
    ([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [tensor([1., 1., 1.])])
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self._rows = list(zip(*(tensor.unbind() for tensor in tensors), strict=True))

    def of(self, row: int) -> list[Tensor]:
        """Return a row of each tensor, as views."""
        return list(self._rows[row])

    def load(self, rows: Iterable[int], models: Iterable[Sequence[Tensor]]) -> None:
        """Copy models into rows; of models with fewer tensors, the others stay."""
        pairs = [pair for row, model in zip(rows, models, strict=True) for pair in zip(self._rows[row], model)]  # noqa: B905 - see above
        if pairs:
            torch._foreach_copy_([mine for mine, _ in pairs], [given.detach() for _, given in pairs])

    def clear(self, rows: Iterable[int]) -> None:
        """Set rows to zero."""
        tensors = [tensor for row in rows for tensor in self._rows[row]]
        if tensors:
            torch._foreach_zero_(tensors)


class Lanes:
    """What lanes hold: weights and logs, a job's outcome; the optimizer's state; and what clients received."""

    def __init__(self, weights: Sequence[Tensor], programs: Programs, dtype: torch.dtype) -> None:
        def rows(tensors: Iterable[Tensor]) -> list[Tensor]:
            return [tensor.new_zeros((programs.lanes, *tensor.shape)) for tensor in tensors]

        self._added = programs.added_gradient
        number = torch.zeros((), dtype=dtype, device=weights[0].device)
        logs = rows([number] * (len(programs.logs["training"]) + len(programs.last_too)))
        self.outcome = Rows([*rows(weights), *logs])
        self._zeroed = Rows([*rows(weight for weight in weights for _ in range(programs.state)), *logs])
        self._start = Rows(rows(weights) if self._added else [])
        self._carried = Rows(rows(self._added.example) if self._added else [])
        count = len(weights)
        models, zeroed = self.outcome.tensors[:count], self._zeroed.tensors[: count * programs.state]
        self.tensors = [*models, *zeroed, *logs, *self._start.tensors, *self._carried.tensors]

    def begin(self, lanes: Sequence[int], jobs: Sequence[Job], arms: Mapping[int, Arm], algorithm: Method) -> None:
        """Begin jobs in lanes."""
        sent = [algorithm.sent(arms[job.arm]) for job in jobs]
        self.outcome.load(lanes, sent)
        self._zeroed.clear(lanes)
        if self._added:
            self._start.load(lanes, sent)
            carried = [self._added.of(job, arms[job.arm]) for job in jobs]
            if self._added.carried:
                self._carried.load(lanes, carried)
