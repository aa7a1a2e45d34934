"""All that is known of a run before it trains: a fit on copies goes as far as its first round, and is looked at."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelSummary, ProgressBar

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import seeding
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.arguments import WrongSettings
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.setup import trainer_checks
from lightning_fedhpo.setup.explanation import Explanation
from lightning_fedhpo.setup.round_timing import clock
from lightning_fedhpo.setup.run_facts import explanation
from lightning_fedhpo.setup.run_hooks import RunHooks

_SHOWS = (ProgressBar, ModelSummary)


def explain(
    fed: RunHooks,
    model: LightningModule,
    data: Any,
    callbacks: Callback | Sequence[Callback],
    trainer: AnyTrainer | None,
) -> Explanation:
    """Return what :meth:`~lightning_fedhpo.FederatedLoop.explain` does."""
    callbacks = [callbacks] if isinstance(callbacks, Callback) else callbacks
    given = {id(one): one for one in (*(() if trainer is None else trainer.callbacks), *callbacks)}
    with _leaving_no_trace(data) as warned, WrongSettings() as wrong:
        loop = replace(fed, folder=None, algorithm=deepcopy(fed.algorithm), clients=deepcopy(fed.clients))
        memo = {id(fed): loop, **{id(one): one for one in (data, trainer, fed.server_data)}}
        others = [one for one in given.values() if one is not fed and not isinstance(one, _SHOWS)]
        copies = [loop, *(_copied(one, memo) for one in others)]
        module = _copied(model, memo)
        search = next((one for one in others if isinstance(one, Search)), None)
        if search is None and (trainer is None or private.rounds_allowed(trainer) is None):
            raise ValueError(
                "`explain` needs the number of rounds, which without a search is the Trainer's max_epochs: pass a "
                "Trainer that has it, explain(model, data, trainer=Trainer(max_epochs=...))."
            )
        more = {}
        if trainer is not None:
            wrong.attempt(trainer_checks.check_strategy, trainer)
        elif search is not None:
            more["max_epochs"] = search.rounds + (fed.retrain or 0)
        preparation = Preparation(lambda savers: explanation(loop.session, trainer, savers))
        private.of_one_process(trainer, [*copies, preparation], **more).fit(module, datamodule=data)
    return replace(preparation.found, warnings=warned)


class Preparation(Callback):
    """Ends a fit before its first round, and looks at what is prepared then."""

    def __init__(self, look: Callable[[int], Explanation]) -> None:
        self._look = look

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take those who save out, after the set-up has checked them."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a Trainer has callbacks
        self._savers = sum(isinstance(one, Checkpoint) for one in callbacks)
        trainer.callbacks = [one for one in callbacks if not isinstance(one, Checkpoint)]  # type: ignore[attr-defined]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave no round."""
        self._began, self._rounds = clock(), trainer.max_epochs
        trainer.fit_loop.max_epochs = 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the run."""
        took, trainer.fit_loop.max_epochs = clock() - self._began, self._rounds
        found = self._look(self._savers)
        seconds = {case: value + took for case, value in found.seconds.items()}
        self.found = replace(found, seconds=seconds)


@contextmanager
def _leaving_no_trace(data: Any) -> Iterator[list[str]]:
    """Leave generators, the data's Trainer and the log as they are; yield the warnings that come."""
    attached = getattr(data, "trainer", None)
    logs = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "lightning_fedhpo")]
    levels, warned = [log.level for log in logs], list[str]()
    try:
        for log in logs:
            log.setLevel(logging.WARNING)
        with seeding.preserved(), warnings.catch_warnings(record=True) as caught:
            yield warned
        warned += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
        if hasattr(data, "trainer"):
            data.trainer = attached


def _copied(one: Any, memo: dict[int, Any]) -> Any:
    try:
        return deepcopy(one, memo)
    except Exception as error:
        raise TypeError(
            f"`explain` prepares copies, and {type(one).__name__} cannot be copied ({type(error).__name__}: {error}): "
            "leave out a callback that cannot; a module must have what it holds as plain values."
        ) from error
