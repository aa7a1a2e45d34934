"""The optimizers and schedules of local training: as new at the beginning of every job, without building them again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from lightning_fedhpo.arms.copies import copied

if TYPE_CHECKING:
    from lightning_fedhpo._lightning import RoundSchedulers

Past = tuple[float, ...]
"""An arm's scores in the rounds behind it."""
POSITIONS = 4096
"""How many configurations' places in their schedules are kept."""
_CONSTANTS = (bool, int, float, str, type(None))
"""Values of a group that are not copied."""


class LocalOptimizers:
    """The optimizers and schedulers of local training, as the module's author set them.

    Every job begins with them as new; nothing is built again for it. Where schedules go by ``rounds``, a job begins
    where the rounds behind its arm have brought them: a function of its configuration and of the arm's scores.
    """

    def __init__(
        self, optimizers: Sequence[Optimizer], schedulers: Sequence[Any], rounds: RoundSchedulers | None = None
    ) -> None:
        self.optimizers = list(optimizers)
        self.schedulers = list(schedulers)
        self.rounds = rounds
        self._reached: dict[Hashable, tuple[Past, Any]] = {}
        self.own, self._states = self._position()
        values = [value for groups in self.own for own in groups for value in own.values()]
        self._constant = all(_is_constant(value) for value in values)
        # Wrappers (Lookahead) hold another optimizer; some optimizers (Adagrad) are born with a state.
        self._nested = [nested for optimizer in self.optimizers for nested in _nested(optimizer)]
        self._initial = [copied(dict(optimizer.state)) for optimizer in self._nested]
        self._attributes = [_own_attributes(optimizer) for optimizer in self._nested]

    def rewind(self) -> None:
        """Forget what one client's training left in them."""
        for optimizer, groups in zip(self.optimizers, self.own, strict=True):
            for group, own in zip(optimizer.param_groups, groups, strict=True):
                # A learning rate may be a tensor, which schedules change in place.
                group.update(own if self._constant else copied(own))
        for optimizer, initial, attributes in zip(self._nested, self._initial, self._attributes, strict=True):
            optimizer.state.clear()
            if initial:
                optimizer.state.update(copied(initial))
            if attributes:
                vars(optimizer).update(copied(attributes))
        for scheduler, state in zip(self.schedulers, self._states, strict=True):
            scheduler.load_state_dict(copied(state))

    def past(self, scores: Sequence[float]) -> Past:
        """Return what an arm's schedules depend on: how many scores it has, and their values if one goes by them."""
        return tuple(scores) if self.rounds is not None and self.rounds.watch_scores else (0.0,) * len(scores)

    def go_to(self, past: Past, start: Hashable) -> None:
        """Step the schedules through an arm's rounds, from a rewound ``start`` with its configuration.

        Where the last call for this start came to is kept: the next round is one step.
        """
        if self.rounds is None:
            return
        done, position = self._reached.pop(start, ((), None))
        if past[: len(done)] != done:
            done, position = (), None
        if position is not None:
            for optimizer, groups in zip(self.optimizers, position[0], strict=True):
                for group, own in zip(optimizer.param_groups, groups, strict=True):
                    group.update(copied(own))
        if done != past:
            for scheduler, state in zip(self.schedulers, position[1] if position else (), strict=False):
                scheduler.load_state_dict(copied(state))
            for number in range(len(done), len(past)):
                self.rounds.step(number, past[number])
            position = self._position()
        self._reached[start] = past, position
        if len(self._reached) > POSITIONS:
            del self._reached[next(iter(self._reached))]

    def _position(self) -> tuple[list[list[dict[str, Any]]], list[Any]]:
        """Return copies of the groups' values and of the schedulers' states."""
        groups = [
            [copied({key: group[key] for key in group if key != "params"}) for group in optimizer.param_groups]
            for optimizer in self.optimizers
        ]
        return groups, [copied(scheduler.state_dict()) for scheduler in self.schedulers]


def _nested(optimizer: Optimizer) -> list[Optimizer]:
    """Return an optimizer and those that it wraps."""
    inner = [value for value in vars(optimizer).values() if isinstance(value, Optimizer) and value is not optimizer]
    return [optimizer, *(nested for value in inner for nested in _nested(value))]


def _own_attributes(optimizer: Optimizer) -> dict[str, Any]:
    """Return the counters, and the containers for tensors, that an optimizer from elsewhere keeps beside its state."""
    if type(optimizer).__module__.startswith("torch.optim"):
        return {}
    standard = {"state", "param_groups", "defaults", *vars(torch.optim.SGD([torch.zeros(1)], lr=0.1))}
    return {
        name: copied(value)
        for name, value in vars(optimizer).items()
        if name not in standard
        and (isinstance(value, bool | int | float | torch.Tensor) or (isinstance(value, dict | list) and not value))
    }


def _is_constant(value: Any) -> bool:
    return all(map(_is_constant, value)) if isinstance(value, tuple) else isinstance(value, _CONSTANTS)
