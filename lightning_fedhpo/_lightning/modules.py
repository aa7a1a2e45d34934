"""What a module overrides, and how it is looked at: its hooks, its own `log`, its door for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.utilities.model_helpers import is_overridden

from lightning_fedhpo._lightning.figures import Log, LoggedValues
from lightning_fedhpo._lightning.hooks import AnyTrainer, Replaced, inside, overrides

STEP_HOOKS = (
    "optimizer_step",
    "optimizer_zero_grad",
    "on_before_zero_grad",
    "on_before_backward",
    "backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "configure_gradient_clipping",
)
"""Hooks inside a training step: a module or a callback with one of them is trained by Lightning's own loops."""

_TIMES = ("epoch_start", "epoch_end", "batch_start", "batch_end")
_STAGES = (*_TIMES, "start", "end", "model_eval", "model_train")
BATCH_HOOKS = (
    *(f"on_train_{when}" for when in _TIMES),
    *(f"on_{stage}_{when}" for stage in ("validation", "test") for when in _STAGES),
)
"""Hooks of the module around a client's batches and epochs, called where the module overrides them."""


def guard_loading(
    strategy: Any,
    module: LightningModule,
    read: Callable[..., Any],
    after: Callable[[Mapping[str, Any]], None],
) -> Callable[[], None]:
    """Look at a checkpoint before Lightning loads the module from it; return what ends the guard.

    ``read`` loads the file by the strategy's own function; ``after`` sees what the module's own hook leaves.
    """
    hook = module.on_load_checkpoint

    def guarded(checkpoint: dict[str, Any]) -> None:
        hook(checkpoint)
        after(checkpoint)

    guard = ExitStack()
    guard.enter_context(Replaced(strategy, load_checkpoint=partial(read, strategy.load_checkpoint)))
    guard.enter_context(Replaced(module, on_load_checkpoint=guarded))
    return guard.close


class ModuleHooks:
    """Calls the hooks around batches and epochs that a module really has."""

    def __init__(self, trainer: AnyTrainer, module: LightningModule) -> None:
        self._trainer = trainer
        self._module = module
        self._present = {hook for hook in BATCH_HOOKS if is_overridden(hook, module)}
        self._shadowed = type(module).log is LightningModule.log and "log" not in vars(module)

    def has(self, hook: str) -> bool:
        """Whether the module overrides a hook."""
        return hook in self._present

    def call(self, hook: str, *arguments: Any) -> Any:
        """Call a hook where the module overrides it."""
        if hook in self._present:
            with inside(self._module, hook):
                return getattr(self._module, hook)(*arguments)
        return None

    @contextmanager
    def logging_to(self, log: Log, hook: str) -> Iterator[None]:
        """Lead ``self.log`` into a log of its own while a client trains or validates."""
        loop, connector = self._trainer.fit_loop.epoch_loop, self._trainer._logger_connector
        shadow, values = {"log": log.log} if self._shadowed else {}, LoggedValues(log)
        with (
            Replaced(self._module, _current_fx_name=hook, **shadow),
            Replaced(connector, _callback_metrics=dict(connector._callback_metrics)),
            Replaced(loop, logged_values=values),  # where Lightning looks while the module trains
            Replaced(loop.val_loop, _results=values),  # and while it validates
        ):
            yield


class _Unreachable:
    """Stands in for a Trainer where nothing may depend on what it says."""

    def __init__(self, complain: Callable[[str], Exception]) -> None:
        self._complain = complain

    def __getattr__(self, name: str) -> Any:
        raise self._complain(name)


@contextmanager
def trainer_unreachable(module: LightningModule, complain: Callable[[str], Exception]) -> Iterator[None]:
    """Raise what ``complain`` makes of an attribute's name when the module asks the Trainer for it."""
    with ExitStack() as stack:
        for child in module.modules():
            if isinstance(child, LightningModule):
                stack.enter_context(Replaced(child, _trainer=_Unreachable(complain)))
        yield


def overridden_around_batches(module: LightningModule) -> list[str]:
    """Name the hooks around batches and epochs that a module has, and ``log`` where it is its own."""
    hooks = [hook for hook in BATCH_HOOKS if "test" not in hook and is_overridden(hook, module)]
    return hooks + (["log"] if type(module).log is not LightningModule.log or "log" in vars(module) else [])


def features_needing_lightning_loop(trainer: AnyTrainer, module: LightningModule) -> list[str]:
    """Name what there is in a step beside loss, backward and optimizer, which only Lightning's own loops do."""
    watchers = {
        f"{type(callback).__name__}.{hook}": overrides(callback, hook)
        for callback in trainer.callbacks
        if not getattr(callback, "is_federated_loop", False)
        for hook in STEP_HOOKS
        if hasattr(Callback, hook)
    }
    kinds = [type(optimizer) for optimizer in trainer.optimizers]
    found = {
        "manual optimization": not module.automatic_optimization,
        f"{len(kinds)} optimizers": len(kinds) != 1,
        "an optimizer of its own": any(not kind.__module__.startswith("torch.optim") for kind in kinds),
        "LBFGS": any(issubclass(kind, torch.optim.LBFGS) for kind in kinds),
        "the Trainer's precision": type(trainer.precision_plugin) is not Precision,
        "the Trainer's profiler": not isinstance(trainer.profiler, PassThroughProfiler),
        "gradient clipping": trainer.gradient_clip_val is not None,
        "gradient accumulation": trainer.accumulate_grad_batches != 1,
        **{f"`{hook}`": is_overridden(hook, module) for hook in STEP_HOOKS},
        **watchers,
    }
    return [what for what, holds in found.items() if holds]
