"""A client's training and validation on the user's module.

A module that overrides nothing inside a step is trained by a bare loop: Lightning's own costs ten times a small model's
step. All others are trained by Lightning's loops, with every hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_fedhpo import _lightning as private
from lightning_fedhpo.client.batch_count import batches_of
from lightning_fedhpo.client.fast_sgd import step_of
from lightning_fedhpo.client.step_log import StepLog
from lightning_fedhpo.data.images import channels_inside
from lightning_fedhpo.data.placement import Placement

if TYPE_CHECKING:
    from lightning_fedhpo.data.examples import Examples
    from lightning_fedhpo.data.federation import FederatedData

Step = Callable[[Any, int], Any]
"""Takes a batch and its number, trains on it, returns what the step produced."""
Slice = tuple[Any, int]
"""A batch and its size."""
Around = Callable[[Step, Any, int], Any]
"""Takes a step, a batch and its number, and calls the step."""


@dataclass(frozen=True)
class Done:
    """What a client's training has done.

    Attributes:
        steps: Optimizer steps, or batches if gradients are accumulated.
        examples: Examples it was trained on, once an epoch.
        evaluations: Examples scored on the way, for schedules that watch a validation score.
        lr_sums: The sum of the steps' learning rates, for each parameter group of every optimizer, if asked for.
    """

    steps: int
    examples: int
    evaluations: int
    lr_sums: Sequence[float] = ()


class LocalTraining:
    """Trains and validates one client after another with one module and one set of optimizers.

    Args:
        trainer: The Trainer, after it has set up the user's ``module`` and its optimizers.
        data: The federation, for its batch transfer hooks.
        after_backward: Adds to the gradients in the bare loop; Lightning's own loops call the hook of that name.
        sums_rates: Sum up the learning rates of a client's steps, which ``schedules`` may change inside its training.

    Attributes:
        step_log: Holds what the module logs.
        channels_inside: Whether batches of images have channels innermost.
        lightning_features: Names what a step has beside loss, backward and optimizer, and only Lightning's loop does;
            with nothing it is ``bare``.
        changes_batches: Whether a hook changes batches on their way to the module.
        placement: Where data are, if not on the CPU and no hook changes batches.
    """

    def __init__(
        self,
        trainer: Trainer,
        module: LightningModule,
        data: FederatedData,
        after_backward: Callable[[], None] | None,
        sums_rates: bool = False,
        schedules: bool = True,
    ) -> None:
        self.trainer, self.module = trainer, module
        self.step_log = StepLog([child for child in module.modules() if isinstance(child, Metric)])
        self.evaluation_batch_size = data.eval_batch_size
        self.channels_inside = False
        self._sums_rates = sums_rates
        self._hooks = private.ModuleHooks(trainer, module)
        self.changes_batches = private.changes_batches(trainer, module, data)
        device = trainer.strategy.root_device
        self.placement = None if self.changes_batches or device.type == "cpu" else Placement(device)
        moves = self.changes_batches or self.placement is not None
        self._transfer = private.batch_transfer(trainer, module) if moves else None
        self._modules = list(module.modules())
        kinds = {type(child) for child in self._modules}
        self._custom_eval = any((kind.train, kind.eval) != (nn.Module.train, nn.Module.eval) for kind in kinds)
        self.lightning_features = private.features_needing_lightning_loop(trainer, module)
        self.bare = not self.lightning_features
        self._step = self._bare_step(after_backward) if self.bare else private.lightning_step(trainer, module)
        self._evaluation_steps: dict[str, Step] = {}
        local = schedules and module.automatic_optimization
        self._schedulers = private.LocalSchedulers(trainer, module) if local else None

    def _ready(self, examples: Examples) -> tuple[Examples, Callable[[Any], Any] | None]:
        """Return the examples, on the module's device if possible, and the transfer that their batches still need."""
        placed = None if self.placement is None else examples.on(self.placement)
        return (examples, self._transfer) if placed is None else (placed, None)

    def slices(self, examples: Examples) -> Iterator[Slice]:
        """Yield all of a client's examples in turn, in batches as validation has them, with their sizes."""
        examples, transfer = self._ready(examples)
        for start in range(0, len(examples), self.evaluation_batch_size):
            end = min(start + self.evaluation_batch_size, len(examples))
            batch = examples.slice(start, end)
            yield batch if transfer is None else transfer(batch), end - start

    @property
    def watches_validation(self) -> bool:
        """Whether a schedule watches the client's validation scores."""
        return self._schedulers is not None and self._schedulers.watch_epochs

    def train(
        self,
        examples: Examples,
        epochs: int,
        batch_size: int,
        batches: int,
        generator: torch.Generator,
        max_steps: int | None = None,
        first: int = 0,
        val: Examples | None = None,
        val_limit: int | float = 1.0,
        around: Around | None = None,
        after_epoch: Callable[[int], None] | None = None,
    ) -> Done:
        """Train for some epochs of so many batches; :attr:`step_log` has what the module logged.

        From the epoch ``first`` on, learning rates are summed up. ``val`` is for a schedule that watches the client's
        validation. ``around`` is called in place of every step, ``after_epoch`` with the number of every epoch that
        has ended.
        """
        trainer, hooks = self.trainer, self._hooks
        examples, transfer = self._ready(examples)
        log, schedulers, inside = self.step_log, self._schedulers, self.channels_inside
        step = self._step if around is None else partial(around, self._step)
        length = len(examples)
        steps, seen, bare, ends = 0, 0, self.bare, hooks.has("on_train_batch_end")
        self._validations = 0
        groups = [group for one in trainer.optimizers for group in one.param_groups] if self._sums_rates else []
        sums, window, stopping = [0.0] * len(groups), trainer.accumulate_grad_batches, trainer.should_stop
        validate = partial(self._watched, val, val_limit) if val is not None and len(val) else None
        log.begin("training")
        with (
            hooks.logging_to(log, "training_step"),
            private.local_progress(self.trainer, batches) as progress,
        ):
            for epoch in range(epochs):
                hooks.call("on_train_epoch_start")
                order = torch.randperm(length, generator=generator)
                for number, batch in enumerate(examples.batches(order, batch_size, batches)):
                    log.batch_size = size = min(batch_size, length - number * batch_size)
                    if transfer is not None:
                        batch = transfer(batch)
                    if inside:
                        batch = channels_inside(batch)
                    progress(number)
                    if hooks.call("on_train_batch_start", batch, number) == -1:
                        break
                    rates = [float(group["lr"]) / window for group in groups if epoch >= first]
                    output = step(batch, number)
                    if rates and not (output is None or output == {}):  # else the module has skipped the batch
                        sums = [total + rate for total, rate in zip(sums, rates, strict=True)]
                    if ends:
                        hooks.call("on_train_batch_end", private.detached(output) if bare else output, batch, number)
                    steps += 1
                    seen += size
                    if schedulers is not None:
                        schedulers.after_step(number, number + 1 == batches, log)
                    if steps == max_steps or trainer.should_stop is not stopping:
                        break
                hooks.call("on_train_epoch_end")
                if after_epoch is not None:
                    after_epoch(epoch)
                if steps == max_steps or trainer.should_stop is not stopping:
                    break
                if schedulers is not None:  # after the last epoch none needs a score
                    schedulers.after_epoch(epoch, log, validate if epoch + 1 < epochs else None)
        validated = self._validations * (self.scored(val, val_limit) if val is not None else 0)
        return Done(steps, seen, validated, sums)

    def losses(
        self, batches: Iterable[Slice], first: int = 0, log: StepLog | None = None
    ) -> Iterator[tuple[Tensor, int]]:
        """Yield the training loss of every batch, with its size; ``first`` is the number of the first."""
        if not self.module.automatic_optimization:
            raise MisconfigurationException(
                "this method differentiates a loss, but the module optimises by hand: take automatic optimization."
            )
        step, log = private.step_function(self.module, "training_step"), log or self.step_log
        log.begin("training")
        with self._hooks.logging_to(log, "training_step"):
            for number, (batch, size) in enumerate(batches, first):
                with self.trainer.precision_plugin.train_step_context():
                    loss = private.loss_of(step(batch, number))
                if loss is not None:
                    yield loss, size
        log.finish()

    def scored(self, examples: Sized, limit: int | float) -> int:
        """Return how many of a client's examples a validation looks at."""
        size = self.evaluation_batch_size
        return min(len(examples), size * batches_of(len(examples), size, False, limit))

    def evaluate(
        self,
        examples: Examples,
        stage: str = "validation",
        limit: int | float = 1.0,
        log: StepLog | None = None,
        batch_size: int | None = None,
        gradients: bool = False,
    ) -> dict[str, float]:
        """Run the module's validation or test step over a client's examples and return what it logged.

        ``log`` collects it in place of :attr:`step_log`.
        """
        hooks, log = self._hooks, log or self.step_log
        examples, transfer = self._ready(examples)
        size, inside = batch_size or self.evaluation_batch_size, self.channels_inside and stage == "validation"
        count = batches_of(len(examples), size, False, limit)
        step = self._evaluation_steps.get(stage)
        if step is None:
            step = self._evaluation_steps[stage] = private.evaluation_step(self.trainer, self.module, stage)
        log.begin(stage)
        with (
            torch.set_grad_enabled(gradients),
            hooks.logging_to(log, f"{stage}_step"),
            private.evaluating(self.trainer, stage),
        ):
            modes = [child for child in self._modules if child.training]
            self._set_mode(False, stage, modes)
            try:
                hooks.call(f"on_{stage}_start")
                hooks.call(f"on_{stage}_epoch_start")
                for number in range(count):
                    start = number * size
                    batch = examples.slice(start, min(start + size, len(examples)))
                    log.batch_size = min(size, len(examples) - start)
                    if transfer is not None:
                        batch = transfer(batch)
                    if inside:
                        batch = channels_inside(batch)
                    hooks.call(f"on_{stage}_batch_start", batch, number)
                    output = step(batch, number)
                    log.returned(output)
                    hooks.call(f"on_{stage}_batch_end", output, batch, number)
                hooks.call(f"on_{stage}_epoch_end")
                hooks.call(f"on_{stage}_end")
            finally:
                self._set_mode(True, stage, modes)
        return log.finish()

    def _watched(self, val: Examples, limit: int | float) -> dict[str, float]:
        self._validations += 1
        return self.evaluate(val, limit=limit, log=StepLog([]))

    def _set_mode(self, training: bool, stage: str, modes: Sequence[nn.Module]) -> None:
        # Only what was in training mode before: a frozen backbone in eval mode stays there.
        hook = f"on_{stage}_model_{'train' if training else 'eval'}"
        if self._hooks.has(hook):
            self._hooks.call(hook)
        elif not training and self._custom_eval:
            self.module.eval()
        else:
            for child in modes:
                child.__dict__["training"] = training

    def _bare_step(self, after_backward: Callable[[], None] | None) -> Step:
        optimizer = self.trainer.optimizers[0]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        training_step = private.step_function(self.module, "training_step")
        optimizer_step = step_of(optimizer)

        def step(batch: Any, number: int) -> Any:
            output = training_step(batch, number)
            loss = private.loss_of(output)
            if loss is None:
                return output
            for parameter in parameters:
                parameter.grad = None
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            if after_backward is not None:
                after_backward()
            optimizer_step()
            return output

        return step
