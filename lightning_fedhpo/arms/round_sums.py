"""The sums of what an arm's clients send in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lightning_fedhpo.types import StackedModel

AT_ONCE = 16
"""So many rows of a stack are summed up together: their differences are in memory beside them."""


class RoundSums:
    """Weighted sums of models and states of the server, and the largest of buffers that are whole numbers.

    Attributes:
        delta: The sum of the weights' differences to those that clients started from.
        floats: The sum of the buffers that are averaged.
        integers: The largest of the other ones.
        of_state: The sums of the server's state, by name.

    Args:
        weights: What clients start from.
        buffers: The buffers they start from.
        server_state: The server's state.
    """

    def __init__(
        self, weights: Sequence[Tensor], buffers: Sequence[Tensor], server_state: Mapping[str, Sequence[Tensor]]
    ) -> None:
        floats, integers = by_kind(buffers)
        self.delta, self.floats = _zeros_for(weights), _zeros_for(floats)
        self.integers = [torch.full_like(tensor, _least(tensor.dtype)) for tensor in integers]
        self.of_state = {name: _zeros_for(tensors) for name, tensors in server_state.items()}
        self._weights = list(weights)
        self._wait_for(())

    def _wait_for(self, stack: Sequence[Tensor]) -> None:
        self._stack, self._rows, self._shares = stack, list[int](), list[float]()

    def add(self, model: Sequence[Tensor], buffers: Sequence[Tensor], weight: float) -> None:
        """Add a client's model; a row of a stack waits for others of the same stack."""
        if not isinstance(model, StackedModel):
            self._add_one(model, buffers, weight)
            return
        if self._stack is not model.stack or len(self._rows) == AT_ONCE:
            self.add_stacked()
            self._wait_for(model.stack)
        self._rows.append(model.row)
        self._shares.append(weight)

    @torch.no_grad()
    def _add_one(self, model: Sequence[Tensor], buffers: Sequence[Tensor], weight: float) -> None:
        floats, integers = by_kind(buffers)
        # Differences are summed, not weights: the update is small beside the weights and would lose digits to them.
        torch._foreach_add_(self.delta, torch._foreach_sub(self._weights, list(model)), alpha=weight)
        if self.floats:
            torch._foreach_add_(self.floats, floats, alpha=weight)
        for largest, tensor in zip(self.integers, integers, strict=True):
            torch.maximum(largest, tensor, out=largest)

    @torch.no_grad()
    def add_stacked(self) -> None:
        """Add the rows that wait, as one product of weights and differences, and let go of their stack."""
        if not self._rows:
            return
        first, count = self._rows[0], len(self._rows)
        chosen = slice(first, first + count) if self._rows[-1] == first + count - 1 else self._rows  # they rise
        weights, found = torch.tensor(self._shares, dtype=torch.float64), []
        for total, start, rows in zip(self.delta, self._weights, self._stack, strict=True):
            moved = torch.sub(start, rows[chosen]).reshape(count, -1).to(total.dtype)
            found.append(torch.mv(moved.T, weights.to(moved)).view(total.shape))
        torch._foreach_add_(self.delta, found)
        self._wait_for(())

    @torch.no_grad()
    def add_state(self, name: str, tensors: Sequence[Tensor], weight: float) -> None:
        """Add to one part of the server's state."""
        torch._foreach_add_(self.of_state[name], list(tensors), alpha=weight)


def by_kind(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Split tensors into those that are averaged and those of which the largest is kept."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]
    return floats, [tensor for tensor in tensors if not (tensor.is_floating_point() or tensor.is_complex())]


def _zeros_for(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return zeros to sum tensors up in, in single precision at least: half of it would lose half of the digits."""
    return [torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]


def _least(dtype: torch.dtype) -> int:
    return 0 if dtype == torch.bool else torch.iinfo(dtype).min
