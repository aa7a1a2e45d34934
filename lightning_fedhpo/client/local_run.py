"""One client's training, as an algorithm sees it: what ``Algorithm.train_locally`` works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm, ServerMethod
from lightning_fedhpo.client.batch_count import batches_of
from lightning_fedhpo.client.module_state import ModuleState
from lightning_fedhpo.client.step_log import StepLog
from lightning_fedhpo.client.training import Around, Done, LocalTraining
from lightning_fedhpo.data.examples import Examples
from lightning_fedhpo.types import Config

LOCAL_EPOCHS = "local_epochs"
"""The client hyperparameter of algorithms with local parameters: so many epochs before the others move only these."""
AddedGradient = Callable[[], Sequence[Tensor]]
"""Returns what is added to the gradients of the weights."""


@dataclass(frozen=True)
class Limits:
    """What bounds a client's batches: the Trainer's limits, the data's ``drop_last``, the steps of a comparison."""

    train: int | float = 1.0
    val: int | float = 1.0
    steps: int | None = None
    drop_last: bool = False

    def batches(self, examples: int, batch_size: int) -> int:
        """Return how many batches of so many examples a client's epoch has."""
        return batches_of(int(examples), batch_size, self.drop_last, self.train)

    def epochs(self, asked: int, batches: int) -> int:
        """Return how many epochs of so many batches are begun.

        >>> Limits(steps=3).epochs(5, batches=2), Limits().epochs(5, batches=2)
        (2, 5)
        """
        return asked if self.steps is None else min(asked, -(-self.steps // max(1, batches)))


@dataclass
class LocalRun:
    """A client's training and what comes of it. The model that it leaves in the module is validated.

    Attributes:
        arm: The arm; its weights and states must not be changed.
        client: The client's number, None for one of another federation.
        values: The algorithm's client hyperparameters.
        start: The weights that the client received.
        sends: Whether anything is sent; nothing is where a model is fine-tuned for a test.
        state: The module's tensors.
        local: The training itself.
        examples: Returns the client's examples of a split.
        once: Trains once.
        rewind: Makes optimizers and schedules as new.
        done: What training has done so far.
        logged: What the first training has logged.
        sent: Weights, buffers and what stays on the client; None takes what the module holds.
        handed: Tensors for :meth:`Algorithm.receive`, by name.
    """

    arm: Arm
    client: int | None
    values: Config
    start: Sequence[Tensor]
    sends: bool
    state: ModuleState
    local: LocalTraining
    examples: Callable[[str], Examples]
    once: Callable[..., Done]
    rewind: Callable[[], object]
    done: Done = Done(0, 0, 0)
    logged: dict[str, float] | None = None
    sent: tuple[list[Tensor], list[Tensor], list[Tensor]] | None = None
    handed: dict[str, list[Tensor]] = field(default_factory=dict)

    @property
    def weights(self) -> list[Tensor]:
        """The module's weights, which training moves."""
        return [weight.detach() for weight in self.state.weights]

    @property
    def trained(self) -> list[Tensor]:
        """All parameters that training moves: the weights, and those that never leave the client."""
        return [*self.state.weights, *(one for one in self.state.personal if one.requires_grad)]

    def tensors(self) -> list[Tensor]:
        """Return all that training moves: weights, buffers, and what never leaves the client."""
        self.state.adopt_replaced_buffers()
        return [*self.weights, *self.state.buffers, *(one.detach() for one in self.state.personal)]

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Put back afterwards what training moves."""
        kept = [one.clone() for one in self.tensors()]
        yield
        torch._foreach_copy_(self.tensors(), kept)

    def train(
        self,
        *,
        around: Around | None = None,
        after_epoch: Callable[[int], None] | None = None,
        added: AddedGradient | None = None,
    ) -> None:
        """Train the module for the client's epochs; if called again, on the same batches in the same order.

        Args:
            around: Called as ``around(step, batch, number)`` in place of every step.
            after_epoch: Called with the number of every epoch that has ended.
            added: Returns what is added to the gradients.
        """
        new, done = self.once(around, after_epoch, added), self.done
        total = done.steps + new.steps, done.examples + new.examples, done.evaluations + new.evaluations
        self.done = Done(*total, new.lr_sums)
        logged = self.local.step_log.finish()
        self.logged = logged if self.logged is None else self.logged

    def gradient(self, split: str = "train", of: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Return the gradient of the mean training loss over all of a client's examples, at the module's weights.

        ``of`` are the tensors to differentiate with respect to, by default the weights.
        """
        parameters = self.state.weights if of is None else of
        sums, total = [torch.zeros_like(one, requires_grad=False) for one in parameters], 0
        with self.undone():
            for loss, size in self.local.losses(self.local.slices(self.examples(split))):
                grads = torch.autograd.grad(loss, parameters, allow_unused=True)
                for one, grad in zip(sums, grads, strict=True):
                    if grad is not None:
                        one.add_(grad, alpha=size)
                total += size
        self.done = replace(self.done, evaluations=self.done.evaluations + total)
        return [one / max(1, total) for one in sums]

    def batch_gradient(self, at: Sequence[Tensor], batch: Any, number: int) -> list[Tensor | None]:
        """Return the gradient of one batch's loss with respect to :attr:`trained`, where these have the values ``at``.

        Module, generators and what is logged are afterwards as before; None where nothing depends on a parameter.
        """
        found: Sequence[Tensor | None] = [None] * len(at)
        with seeding.preserved(), self.undone():
            torch._foreach_copy_([one.detach() for one in self.trained], list(at))
            for loss, _ in self.local.losses([(batch, 1)], number, StepLog([])):
                found = torch.autograd.grad(loss, self.trained, allow_unused=True)
        self.done = replace(self.done, evaluations=self.done.evaluations + self.local.step_log.batch_size)
        return list(found)

    @torch.no_grad()
    def restart(self, tensors: Sequence[Tensor]) -> None:
        """Put values for :meth:`tensors` into the module, with optimizers and schedules as new."""
        self.rewind()
        for tensor in (*self.state.weights, *self.state.personal):
            tensor.grad = None
        torch._foreach_copy_(self.tensors(), list(tensors))

    def send(self, weights: Sequence[Tensor] | None = None) -> None:
        """Send these weights, or a copy of the module's; buffers and what stays on the client are as they are now."""
        self.state.adopt_replaced_buffers()
        kinds = self.weights if weights is None else weights, self.state.buffers, self.state.personal
        copies = [[one.detach().clone() for one in kind] for kind in kinds]
        self.sent = copies[0], copies[1], copies[2]


class Method(ServerMethod, Protocol):
    """What workbench and executors ask of an algorithm; :class:`~lightning_fedhpo.algorithms.base.Algorithm` has it."""

    client: dict[str, float]
    needs_lr_sums: bool
    start_round: int

    @property
    def keeps_client_state(self) -> bool:
        """Whether clients keep parameters or state of their own."""

    @property
    def overrides_local_training(self) -> bool:
        """Whether :meth:`train_locally` does more than train."""

    @property
    def adds_gradient(self) -> bool:
        """Whether it adds to the gradients."""

    def sent(self, arm: Arm) -> Sequence[Tensor]:
        """Return the weights that clients train from."""

    def carried(self, arm: Arm, client: int | None) -> Sequence[Tensor]:
        """Return a client's own tensors for :meth:`added_gradient`."""

    def added_gradient(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], hyperparameters: Config, carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the gradient that is added to that of a client's loss."""

    def train_locally(self, run: LocalRun) -> None:
        """Train one client."""
