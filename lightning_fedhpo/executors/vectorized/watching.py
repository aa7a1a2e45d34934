"""Whether what a traced step was made of is still what it was: looked at before every round."""

from __future__ import annotations

from collections.abc import Sequence

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.client.fast_sgd import is_wrapped
from lightning_fedhpo.client.module_state import ModuleState
from lightning_fedhpo.client.training import LocalTraining
from lightning_fedhpo.executors.vectorized.fingerprint import Fingerprint

CHANGES_TOLD = 10
"""Rounds in a row before which a module was changed, after which that is told."""


class Watched:
    """What steps read, and somebody may change between two rounds: module, optimizers, algorithm.

    Args:
        local: Trains the module.
        state: The module's tensors.
        algorithm: The federated method.
        read: The attributes that it reads for what it adds to gradients.
    """

    def __init__(self, local: LocalTraining, state: ModuleState, algorithm: Algorithm, read: Sequence[str]) -> None:
        self._local, self._state, self._algorithm, self._read = local, state, algorithm, read
        self._changes = 0
        self._before = self._seen()

    def has_changed(self) -> bool:
        """Whether anything is another since the last look; tell where that is so before every round."""
        seen = self._seen()
        if seen == self._before:
            self._changes = 0
            return False
        self._changes += 1
        if self._changes == CHANGES_TOLD:
            what = self._before.differs_in(seen)
            rank_zero_warn(
                f"executor: the module, or the algorithm, changes before every round (`{what}`), and each time its "
                "step is traced anew, which may take longer than the round. What steps do not read is better kept in a "
                "callback; what a method adds by comes from `Algorithm.carried`."
            )
        self._before = seen
        return True

    def _seen(self) -> Fingerprint:
        found = Fingerprint.of(self._local.module)
        found.add({"its optimizer's step": any(is_wrapped(one) for one in self._local.trainer.optimizers)})
        found.add({name: getattr(self._algorithm, name, None) for name in self._read})
        return found
