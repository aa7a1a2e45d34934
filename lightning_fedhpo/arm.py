"""One independent federated run: its weights, its server's optimizer, and what its clients have sent this round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lightning_fedhpo.gradless import gradless
from lightning_fedhpo.types import ClientResult, Config

if TYPE_CHECKING:
    from lightning_fedhpo.algorithms.base import Algorithm


class Arm:
    """The state of one federated run, and the running sums of its present round.

    Nothing that a checkpoint holds changes inside a round: results are only summed up, and :meth:`aggregate` turns the
    sums into new weights. So a checkpoint taken inside a round resumes at that round's start, exactly.

    Args:
        index: The arm's number in the run.
        algorithm: Makes the server's optimizer and takes its step.
        server: The server's configuration; what it leaves out is the algorithm's default.
        weights: The initial weights that clients train, copied.
        buffers: The initial tensors that are averaged without an optimizer (batch-norm statistics), copied.
        client: What a search has drawn for all of the arm's clients; a tuner's suggestions go over it.
    """

    def __init__(
        self,
        index: int,
        algorithm: Algorithm,
        server: Config,
        weights: Sequence[Tensor],
        buffers: Sequence[Tensor] = (),
        client: Config | None = None,
    ) -> None:
        self.index = index
        self.server = {**algorithm.server, **server}
        self.weights = [tensor.detach().clone().requires_grad_() for tensor in weights]
        self.buffers = [tensor.detach().clone() for tensor in buffers]
        self.optimizer: Optimizer = algorithm.server_optimizer(self.weights, self.server)
        self.personal: dict[int, list[Tensor]] = {}
        self.client = dict(client or {})
        self.rounds = 0
        self.scores: list[float] = []
        self.eliminated_at: int | None = None
        self.finished = False
        self._forget()

    @property
    def nbytes(self) -> int:
        """What sending the arm's model once takes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.weights, *self.buffers))

    def _forget(self) -> None:
        self._total = 0.0
        self._delta: list[Tensor] | None = None
        self._floats: list[Tensor] | None = None
        self._integers: list[Tensor] | None = None
        self._personal: dict[int, list[Tensor]] = {}

    @gradless
    def add(self, result: ClientResult, weight: float) -> None:
        """Add one client's model to the round's sums; the client's tensors are free for the next job afterwards."""
        if result.personal:
            self._personal[result.job.client] = [tensor.clone() for tensor in result.personal]
        floats, integers = _by_kind(result.buffers)
        if self._delta is None:
            self._delta, self._floats = _sums_for(self.weights), _sums_for(floats)
            self._integers = [tensor.clone() for tensor in integers]
        self._total += weight
        # Differences are summed, not weights: the update is small beside the weights and would lose digits to them.
        torch._foreach_add_(self._delta, torch._foreach_sub(self.weights, list(result.weights)), alpha=weight)
        if self._floats:
            torch._foreach_add_(self._floats, floats, alpha=weight)
        for largest, tensor in zip(self._integers or (), integers, strict=True):
            torch.maximum(largest, tensor, out=largest)

    @property
    def total(self) -> float | None:
        """The weight of the results that are summed up, None where none has come."""
        return None if self._delta is None else self._total

    @property
    def arrived(self) -> dict[int, list[Tensor]]:
        """What the round's clients keep to themselves."""
        return self._personal

    def sums(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the round's sums and its largest integers, for those of other processes to go in.

        Where no result has come they are zeros, and the least integers there are.
        """
        if self._delta is None:
            floats, integers = _by_kind(self.buffers)
            self._delta, self._floats = _sums_for(self.weights), _sums_for(floats)
            self._integers = [torch.full_like(tensor, _least(tensor.dtype)) for tensor in integers]
        return [*self._delta, *(self._floats or ())], list(self._integers or ())

    def take(self, total: float, personal: Mapping[int, Sequence[Tensor]]) -> None:
        """Take over the weight and the clients' own parts that belong to sums of several processes."""
        self._total = total
        device = self.weights[0].device
        self._personal = {client: [tensor.to(device) for tensor in kept] for client, kept in personal.items()}

    def pseudo_gradient(self) -> list[Tensor] | None:
        """Return ``w - sum n_i w_i``, or None where no client's model arrived this round."""
        if self._delta is None or not self._total:
            return None
        torch._foreach_div_(self._delta, self._total)
        return [delta.to(weight.dtype) for delta, weight in zip(self._delta, self.weights, strict=True)]

    @gradless
    def commit(self) -> None:
        """Take the averaged buffers and the clients' own parts, and close the round."""
        floats, integers = _by_kind(self.buffers)
        if self._floats and self._total:
            torch._foreach_copy_(floats, torch._foreach_div(self._floats, self._total))
        for tensor, largest in zip(integers, self._integers or (), strict=False):
            tensor.copy_(largest)
        self.personal.update(self._personal)
        self.rounds += 1
        self._forget()

    def discard(self) -> None:
        """Throw away what has been summed since the round began."""
        self._forget()

    @property
    def live(self) -> bool:
        """Whether the arm takes part in rounds."""
        return self.eliminated_at is None and not self.finished

    def eliminate(self, number: int) -> None:
        """Take the arm out after a round and free its memory: what it was and how it scored is kept."""
        self.eliminated_at = number
        self.weights, self.buffers, self.personal = [], [], {}
        self.optimizer.state.clear()
        self.optimizer.param_groups.clear()
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that affects the arm's next round."""
        return {
            "index": self.index,
            "server": dict(self.server),
            "weights": [tensor.detach().clone() for tensor in self.weights],
            "buffers": [tensor.clone() for tensor in self.buffers],
            "optimizer": _copied(self.optimizer.state_dict()) if self.eliminated_at is None else {},
            "personal": {client: list(tensors) for client, tensors in self.personal.items()},
            "rounds": self.rounds,
            "eliminated_at": self.eliminated_at,
            "finished": self.finished,
            "scores": torch.tensor(self.scores, dtype=torch.float64),
            "client": dict(self.client),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the state of an arm of the same model and algorithm."""
        if state["eliminated_at"] is not None:
            self.eliminate(state["eliminated_at"])
        else:
            self.optimizer.load_state_dict(state["optimizer"])
        for mine, saved in zip((*self.weights, *self.buffers), (*state["weights"], *state["buffers"]), strict=True):
            mine.copy_(saved)
        self.personal = {int(client): list(tensors) for client, tensors in state["personal"].items()}
        self.server = dict(state["server"])
        self.rounds = state["rounds"]
        self.finished = state["finished"]
        self.scores = state["scores"].tolist()
        self.client = dict(state["client"])
        self._forget()


def _copied(state: Any) -> Any:
    """Copy an optimizer's state, whose tensors its next step changes in place."""
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copied(value) for value in state)
    return state.clone() if isinstance(state, Tensor) else state


def _sums_for(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return zeros to sum tensors up in, in single precision at least: half of it would lose half of the digits."""
    return [torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]


def _by_kind(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Split tensors into those that are averaged and those of which the largest is kept."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]
    return floats, [tensor for tensor in tensors if not (tensor.is_floating_point() or tensor.is_complex())]


def _least(dtype: torch.dtype) -> int:
    return 0 if dtype == torch.bool else torch.iinfo(dtype).min
