"""Which hooks callbacks have, and how they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.trainer import call

AnyTrainer: TypeAlias = Any
"""A Trainer: Lightning gives it many of its attributes outside of the class, where types do not see them."""


class Replaced:
    """Gives an object other attributes for a while: a class, since it is faster than a generator."""

    def __init__(self, owner: Any, **values: Any) -> None:
        self._own, self._values = vars(owner), values  # not by `setattr`, which a module makes slow

    def __enter__(self) -> None:
        own = self._own
        self._before = {name: own[name] for name in self._values if name in own}
        own.update(self._values)

    def __exit__(self, *error: object) -> None:
        if len(self._before) < len(self._values):
            for name in self._values.keys() - self._before.keys():
                self._own.pop(name, None)
        self._own.update(self._before)


def inside(module: LightningModule, hook: str) -> Replaced:
    """Say which hook is running, as ``self.log`` wants to know."""
    return Replaced(module, _current_fx_name=hook)


def overrides(callback: Callback, hook: str) -> bool:
    """Whether a callback has a hook of its own."""
    return getattr(type(callback), hook, None) is not getattr(Callback, hook) or hook in vars(callback)


def is_awaited(trainer: AnyTrainer, hook: str) -> bool:
    """Whether a callback has the hook."""
    return any([overrides(callback, hook) for callback in trainer.callbacks])


def call_callbacks(trainer: AnyTrainer, hook: str, **which: bool) -> None:
    """Call a hook of the callbacks as Lightning does, where one of them has it."""
    if is_awaited(trainer, hook):
        call._call_callback_hooks(trainer, hook, **which)


def batch_callbacks(trainer: AnyTrainer, hook: str) -> list[Callback]:
    """Return who is called for every job; bars are told of its end apart from the others."""
    return [
        callback
        for callback in trainer.callbacks
        if overrides(callback, hook) and not (isinstance(callback, ProgressBar) and hook == "on_train_batch_end")
    ]


def call_each(trainer: AnyTrainer, callbacks: Sequence[Callback], hook: str, *arguments: Any) -> None:
    """Call a hook of these callbacks."""
    if not callbacks:
        return
    module = trainer.lightning_module
    with inside(module, hook):
        for callback in callbacks:
            getattr(callback, hook)(trainer, module, *arguments)


def watchers_of_jobs(trainer: AnyTrainer) -> list[str]:
    """Name the callbacks, other than Lightning's and ours, that act between two jobs."""

    def acts(callback: Callback, hook: str) -> bool:
        known = type(callback).__module__.startswith(("lightning.", "lightning_fedhpo.", "pytorch_lightning."))
        return hook in vars(callback) or (overrides(callback, hook) and not known)

    hooks = ("on_train_batch_start", "on_train_batch_end")
    return [type(one).__name__ for one in trainer.callbacks if any(acts(one, hook) for hook in hooks)]
