"""Learning-rate schedulers: inside a client's training, or once a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.optim.lr_scheduler import OneCycleLR

from lightning_fedhpo._lightning.figures import Log
from lightning_fedhpo._lightning.hooks import AnyTrainer, Replaced, inside

Validate: TypeAlias = Callable[[], dict[str, float]] | None


class LocalSchedulers:
    """Steps the learning-rate schedulers of automatic optimisation inside a client's training."""

    def __init__(self, trainer: AnyTrainer, module: LightningModule) -> None:
        self._module = module
        self._window = trainer.accumulate_grad_batches
        self._by_step = [config for config in trainer.lr_scheduler_configs if config.interval == "step"]
        self._by_epoch = [config for config in trainer.lr_scheduler_configs if config.interval == "epoch"]

    @property
    def watch_epochs(self) -> bool:
        """Whether one of them may want a client's validation scores at the end of an epoch."""
        return any(config.reduce_on_plateau for config in self._by_epoch)

    def after_step(self, number: int, last: bool, log: Log) -> None:
        """Step those that go by optimizer steps."""
        if self._by_step and ((number + 1) % self._window == 0 or last):
            self._advance(self._by_step, number, log, None)

    def after_epoch(self, epoch: int, log: Log, validate: Validate) -> None:
        """Step those that go by local epochs; ``validate`` scores the client for one that watches its validation."""
        if self._by_epoch:
            self._advance(self._by_epoch, epoch, log, validate)

    def _advance(self, configs: Sequence[Any], number: int, log: Log, validate: Validate) -> None:
        scores: dict[str, float] | None = None
        for config in configs:
            if (number + 1) % config.frequency or _is_over(config.scheduler):
                continue
            logged = log.so_far() if config.reduce_on_plateau else {}
            if config.reduce_on_plateau and config.monitor not in logged and validate is not None:
                scores = validate() if scores is None else scores
                logged |= scores
            metric = logged.get(config.monitor)
            if metric is not None or not config.reduce_on_plateau:
                with inside(self._module, "lr_scheduler_step"):
                    self._module.lr_scheduler_step(config.scheduler, metric)
            elif config.strict and (scores is not None or config.interval == "step"):
                raise MisconfigurationException(
                    f"ReduceLROnPlateau watches {config.monitor!r}, which is not known there: a client logs "
                    f"{', '.join(logged) or 'nothing'}. Schedulers run inside a client's training; after each epoch "
                    '(interval="epoch") they may watch its validation, after a step only its training.'
                )


class RoundSchedulers:
    """Steps every schedule once a round, whatever its interval; optimizers lose what schedules wrap around their step.

    After the last of its ``rounds`` an arm keeps its rates, so that it is tested with them; -1 is no last one.

    Attributes:
        watch_scores: Whether one of them goes by the arm's score.
    """

    def __init__(self, trainer: AnyTrainer, module: LightningModule, rounds: int) -> None:
        self._module, self._configs, self._rounds = module, trainer.lr_scheduler_configs, rounds
        self.watch_scores = any(config.reduce_on_plateau for config in self._configs)
        self._wrapped: list[Replaced] = []
        for optimizer in trainer.optimizers:  # the wrapper notes that the optimizer has stepped, for a warning
            if hasattr(step := vars(optimizer).get("step"), "_wrapped_by_lr_sched"):
                del optimizer.step
                optimizer._opt_called = True
                self._wrapped.append(Replaced(optimizer, step=step))

    def step(self, number: int, score: float) -> None:
        """Step all after the round of a number; one that goes by the score only if there is one."""
        for config in self._configs if number + 1 != self._rounds else ():
            every = config.frequency if config.interval == "epoch" else 1
            if (number + 1) % every or _is_over(config.scheduler):
                continue
            if config.reduce_on_plateau and math.isnan(score):
                continue
            metric = score if config.reduce_on_plateau else None
            with ExitStack() as wrapped:
                for own in self._wrapped:  # a schedule warns where it does not find its wrapper
                    wrapped.enter_context(own)
                wrapped.enter_context(inside(self._module, "lr_scheduler_step"))
                self._module.lr_scheduler_step(config.scheduler, metric)


def _is_over(scheduler: Any) -> bool:
    """Whether a schedule of fixed length has ended: the client goes on at its last rate."""
    return isinstance(scheduler, OneCycleLR) and scheduler.last_epoch + 1 >= scheduler.total_steps
