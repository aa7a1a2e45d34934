"""What a federated method adds to the gradients of clients that are computed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.types import Job

if TYPE_CHECKING:
    from lightning_fedhpo.algorithms.base import Algorithm

Function = Callable[[Sequence[Tensor], Sequence[Tensor], Mapping[str, Any], Sequence[Tensor]], Sequence[Tensor]]
"""``Algorithm.added_gradient``."""


@dataclass(frozen=True)
class Added:
    """What a method adds, and what it takes for it.

    Attributes:
        names: The method's hyperparameters.
        carried: How many tensors every client carries.
        nbytes: What they take.
        gradient: What is added.
    """

    names: Sequence[str]
    carried: int
    nbytes: int
    gradient: Function

    @classmethod
    def of(cls, algorithm: Algorithm, arm: Arm, client: int) -> Added | None:
        """Return what a method adds, by what a client of it carries; None where it adds nothing."""
        if not algorithm.changes_gradient:
            return None
        carried = algorithm.carried(arm, client)
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in carried)
        return cls(list(algorithm.client), len(carried), nbytes, algorithm.added_gradient)

    def batched(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], numbers: Sequence[Tensor], carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return what is added, where hyperparameters are tensors, and say whose it is where torch cannot do that."""
        try:
            return self.gradient(weights, start, dict(zip(self.names, numbers, strict=True)), carried)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:100]
            raise CannotBatchError(
                f"`added_gradient` is not made of tensor operations alone, such as `torch.where` for `if` ({reason})"
            ) from error

    def stacked(self, algorithm: Algorithm, jobs: Sequence[Job], arms: Mapping[int, Arm]) -> list[Tensor]:
        """Return what the jobs' clients carry, side by side."""
        by_job = [algorithm.carried(arms[job.arm], job.client) for job in jobs]
        for job, carried in zip(jobs, by_job, strict=True):
            if len(carried) != self.carried:
                raise CannotBatchError(
                    f"client {job.client} carries {len(carried)} tensors in {type(algorithm).__name__} where another "
                    f"carries {self.carried}"
                )
        return [torch.stack(list(column)) for column in zip(*by_job, strict=True)]
