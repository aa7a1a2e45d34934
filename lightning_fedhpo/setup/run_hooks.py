"""Lightning's hooks around the rounds of a run: optimizers, checkpoints, errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer

from lightning_fedhpo import processes
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.run import checkpoint, checkpoint_file
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.setup.checks import federated_data
from lightning_fedhpo.setup.session import Session
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import plain


class RunHooks(Callback, LoopOptions):
    """Base of :class:`~lightning_fedhpo.FederatedLoop`: everything but the rounds."""

    is_federated_loop = True
    _begun = False
    _session: Session | None = None
    _release: Callable[[], None] = staticmethod(lambda: None)

    @property
    def state_key(self) -> str:
        """The name in a checkpoint; its own before a run, so that a second loop is refused by our words."""
        return super().state_key if self._begun else f"{super().state_key} {id(self)}"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write and load checkpoints safely, whatever the Trainer is to do."""
        self._begun = True
        checkpoint_file.install(trainer.strategy, trainer.global_rank, trainer.default_root_dir)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the optimizers as their author made them."""
        self._release()
        self.session.remember_optimizers()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take a client's half-trained model out of the module."""
        if not hasattr(getattr(trainer, "datamodule", None) or self, "on_exception"):
            federated_data(trainer)  # a table, say: Lightning has failed before our set-up, and goes on to ask it
        self._release()
        if not processes.is_common(exception):  # the others learn of it by the broken connection
            processes.disconnect()
        if self._session is not None and self._session.has_arms:
            self._session.show_best()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the algorithm's part to the gradients, and look at them, if Lightning's own loops train."""
        if self.algorithm.changes_gradient or self.session.bench.cosines.wanted:
            self.session.bench.after_backward()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that affects the next round, and everything that was written down."""
        session = self._session
        return checkpoint.state_of(session.state, session.executor) if session is not None and session.prepared else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a checkpoint's state until the arms are made."""
        if self._session is not None:
            self._session.saved = state_dict

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, saved: dict[str, Any]) -> None:
        """Save the best arm's weights, also from inside a round when the module holds a client's, and what was found.

        Hyperparameters such as ``classes=y.max() + 1`` are saved as plain numbers: numpy's are not loaded safely.
        """
        session = self._session
        if session is not None and session.has_arms:
            session.put_best_model(saved)
            if found := session.found_hparams:
                held = deepcopy(saved[pl_module.CHECKPOINT_HYPER_PARAMS_KEY])  # OmegaConf's is the module's own
                held.update(found)
                saved[pl_module.CHECKPOINT_HYPER_PARAMS_KEY] = held
        for key in (pl_module.CHECKPOINT_HYPER_PARAMS_KEY, LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY):
            if type(saved.get(key)) is dict:
                saved[key] = plain(saved[key])

    @property
    def arms(self) -> Sequence[Arm]:
        """The run's arms, in the order in which they were started."""
        return () if self._session is None else self._session.state.arms

    @property
    def parts(self) -> RunParts:
        """What the run is composed of."""
        return self.session.parts

    @property
    def data(self) -> FederatedData:
        """The run's federation."""
        return self.parts.data

    @property
    def tuner(self) -> Tuner:
        """The run's tuner; one that sets nothing if none was given."""
        return self.parts.tuner

    @property
    def search(self) -> Search:
        """The run's search; one that starts a single arm if none was given."""
        return self.parts.search

    @property
    def choice(self) -> str:
        """What runs the jobs, and why; nothing before it is decided."""
        return self._session.executor.choice if self._session is not None and self._session.prepared else ""

    @property
    def session(self) -> Session:
        """The parts of the run; they exist from the beginning of ``fit`` on."""
        if self._session is None:
            raise RuntimeError("there is no run yet: `trainer.fit(model, datamodule=...)` begins one.")
        return self._session

    def retrace(self) -> None:
        """Trace the module's steps anew: for a callback that changes what one look at the module does not show."""
        self.session.executor.retrace()
