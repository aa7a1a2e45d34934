"""What a federated method adds to the gradients of clients that are computed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.types import Job

if TYPE_CHECKING:
    from lightning_fedhpo.client.local_run import Method


class AddedGradient:
    """What a method adds to gradients. Every client carries as many tensors as the one whose tensors are given."""

    def __init__(self, algorithm: Method, carried: Sequence[Tensor]) -> None:
        self._algorithm = algorithm
        self.names, self.example, self.carried = list(algorithm.client), list(carried), len(carried)
        self.nbytes = sum(tensor.nbytes for tensor in carried)

    def batched(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], numbers: Sequence[Tensor], carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return what is added where hyperparameters are tensors."""
        try:
            values = dict(zip(self.names, numbers, strict=True))
            return self._algorithm.added_gradient(weights, start, values, carried)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:100]
            raise CannotBatchError(
                f"`added_gradient` is not made of tensor operations alone, such as `torch.where` for `if` ({reason})"
            ) from error

    def of(self, job: Job, arm: Arm) -> Sequence[Tensor]:
        """Return what a job's client carries."""
        carried = self._algorithm.carried(arm, job.client)
        if len(carried) != self.carried:
            raise CannotBatchError(
                f"client {job.client} carries {len(carried)} tensors in {type(self._algorithm).__name__} where "
                f"another carries {self.carried}"
            )
        return carried
