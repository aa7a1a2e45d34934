"""A data module that stands in for another one: it hands on what it does not do itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightning import LightningDataModule, Trainer
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks

from lightning_fedhpo import _lightning as private

TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
SETTINGS = ("name", "prepare_data_per_node", "allow_zero_length_dataloader_with_multiple_devices")
"""What Lightning reads from a data module beside its hooks."""
HOOKS = frozenset(name for kind in (ModelHooks, DataHooks, CheckpointHooks) for name in vars(kind))
"""Names that Lightning calls itself: these are forwarded one by one, where that is right."""


class DataModuleProxy(LightningDataModule):
    """Hand on a data module's state, settings, transfer hooks, hyperparameters and public attributes, if there is one.

    Private attributes are not handed on: pickle, copy and numpy ask for them to find out what an object can do.
    """

    _module: LightningDataModule | None = None

    def __init__(self) -> None:
        super().__init__()
        self._prepared = False

    def _stand_in_for(self, module: LightningDataModule) -> None:
        """Begin to hand on to a data module."""
        self._module = module
        take_own_hyperparameters(module)
        for name in SETTINGS:
            setattr(self, name, getattr(module, name))
        for name in TRANSFER_HOOKS:  # on the instance: Lightning asks whether we override them
            if overrides(module, name):
                setattr(self, name, getattr(module, name))
        private.share_hyperparameters(module, self)

    if not TYPE_CHECKING:  # a type checker would take any attribute for granted

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the data module's."""
            if hasattr(type(self), name):  # a property of ours that raised an AttributeError: let it say which
                return super().__getattribute__(name)
            kind = type(self).__name__
            if self._module is None or not self._borrows(name):
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            try:
                return getattr(self._module, name)
            except AttributeError as error:
                rule = f"an attribute of a {kind} must be its own or its data module's, got {name!r}: {error}"
                raise AttributeError(f"{rule}. What `setup` makes is there from the first look at clients.") from error

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute where it is."""
            theirs = name not in vars(self) and self._borrows(name) and hasattr(self._module, name)
            setattr(self._module, name, value) if theirs else super().__setattr__(name, value)

    def _borrows(self, name: str) -> bool:
        return not name.startswith("_") and name not in HOOKS and not hasattr(type(self), name)

    @property
    def trainer(self) -> Trainer | None:
        """The trainer that it was last given to; the data module has the same."""
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Trainer | None) -> None:
        self._trainer = trainer
        if self._module is not None:
            self._module.trainer = trainer

    def prepare_data(self) -> None:
        """Let the data module prepare its data, once."""
        if self._module is not None and not self._prepared:
            self._module.prepare_data()
        self._prepared = True

    def state_dict(self) -> dict[str, Any]:
        """Return the data module's state."""
        return {} if self._module is None else self._module.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Hand the data module its state."""
        if self._module is not None:
            self._module.load_state_dict(state_dict)

    def on_exception(self, exception: BaseException) -> None:
        """Tell the data module that the run has broken off."""
        if self._module is not None:
            self._module.on_exception(exception)


def overrides(module: LightningDataModule, name: str) -> bool:
    """Return whether a data module has its own version of a method, in its class or on the instance."""
    method = getattr(module, name)
    return getattr(method, "__func__", method) is not getattr(LightningDataModule, name)


def take_own_hyperparameters(module: LightningDataModule) -> None:
    """Give a data module its own hyperparameters back.

    With `subclass_mode_data`, LightningCLI makes `save_hyperparameters()` of every data module save those of the
    outermost one, whose `dataset` describes the inner one.
    """
    saved = module.hparams
    inner: Any = saved.get("dataset")
    path = str(inner.get("class_path")) if isinstance(inner, Mapping) else ""
    if "_instantiator" in saved and path.rpartition(".")[2] == type(module).__name__:
        own = {"_class_path": path, **inner.get("init_args", {}), **inner.get("dict_kwargs", {})}
        own["_instantiator"] = saved["_instantiator"]
        private.replace_hyperparameters(module, own)
