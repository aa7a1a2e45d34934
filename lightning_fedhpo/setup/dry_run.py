"""The dry run before the first round: one client trains for a few steps, and everything is put back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import seeding
from lightning_fedhpo.client.module_state import all_finite, is_cache, named_state, slot
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.setup.checks import check_logged
from lightning_fedhpo.setup.effect_check import Outcome, equal
from lightning_fedhpo.types import Config

TRIAL_STEPS = 3
"""Steps of a trial: momentum shows in the second, a proximal term too."""


class ClientError(RuntimeError):
    """A client's training has raised."""


class DryRun:
    """Trains one client for a few steps, always from the same start with the same randomness.

    Attributes:
        moved: Whether any training has changed a weight so far.
    """

    def __init__(self, bench: Workbench, seed: int, start: dict[str, torch.Tensor], longest: int) -> None:
        self._bench, self._seed, self._start, self._longest = bench, seed, start, longest
        self._client = 0
        self.moved = False

    def choose(self, clients: Sequence[int], config: Config) -> list[str]:
        """Take the first client that is fit for trials, or the last; return the untrained tensors it changed.

        A client that diverges proves nothing: whatever is tuned, it ends in nan. One that raises is passed over where
        the run would go on without it.
        """
        for client in clients[:-1]:
            self._client = client
            try:
                (trained, _), changed = self.run(config)
                if all_finite(trained):
                    return changed
            except ClientError:
                if self._bench.on_error == "raise":
                    raise
        self._client = clients[-1]
        return self.run(config)[1]

    def outcome(self, config: Config, full: bool) -> Outcome | None:
        """Return the outcome of a few steps, or of a full training; None if the client fails and is dropped."""
        try:
            return self.run(config, full)[0]
        except ClientError:
            if self._bench.on_error == "raise":
                raise
            return None

    def run(self, config: Config, full: bool = False) -> tuple[Outcome, list[str]]:
        """Train with a configuration; return the outcome and the names of the untrained tensors that changed."""
        bench, local = self._bench, self._bench.local
        module, monitor = local.module, bench.monitor
        bench.state.begin()
        arm = bench.untrained_arm()
        # A rate that falls over rounds has fallen in the second; some methods begin later still.
        arm.rounds = max(1, bench.algorithm.start_round if full else 0)
        arm.scores = [math.nan] * arm.rounds
        bench.begin_client(arm, self._client, config)
        draw = seeding.key(self._seed, seeding.BATCHES)
        seeding.seed_user_code(seeding.key(self._seed, seeding.USER))
        steps = TRIAL_STEPS * local.trainer.accumulate_grad_batches
        # An epoch ends with a step of the optimizer, however few batches were accumulated.
        short = TRIAL_STEPS, replace(bench.limits, train=1.0, val=1.0, steps=steps)
        epochs, limits = (self._longest, replace(bench.limits, val=1.0)) if full else short
        try:
            scores: dict[str, float] = {}
            try:
                run = bench.train(bench.data, self._client, draw, epochs=epochs, limits=limits)
                if monitor is not None:
                    scores = local.evaluate(bench.data.examples(self._client, "val"), limit=1)
            except MisconfigurationException:
                raise  # the module's fault, whoever the client is
            except Exception as error:
                tried = f", when the module was tried with {dict(config)}" if config else ""
                rule = f"client {self._client} failed before the first round{tried}"
                raise ClientError(f"{rule}: {type(error).__name__}: {error}") from error
            check_logged(scores, monitor)
            state = [(name, tensor) for name, tensor, trainable in named_state(module) if trainable]
            self.moved = self.moved or any(
                self._known(*one) and not equal(one[1], self._start[one[0]]) for one in state
            )
            sent = (run.sent or [bench.state.weights])[0]
            own = (one for one in bench.state.personal if one.requires_grad)
            handed = (one for several in run.handed.values() for one in several if one.is_floating_point())
            trained = [tensor.detach().clone() for tensor in (*sent, *own, *handed)]
            changed = [
                name for name, tensor, trainable in named_state(module) if not trainable and self._differs(name, tensor)
            ]
        finally:
            bench.state.end()
            with torch.no_grad():
                for name, tensor, _ in named_state(module):
                    if self._known(name, tensor):
                        tensor.copy_(self._start[name])
                        tensor.grad = None
                    elif name in self._start and is_cache(module, name):
                        owner, key = slot(module, name)
                        owner[key] = self._start[name].clone()
        return (trained, scores), changed

    def _differs(self, name: str, tensor: torch.Tensor) -> bool:
        if self._known(name, tensor):
            return not equal(tensor, self._start[name])
        if not is_cache(self._bench.local.module, name):
            raise ValueError(
                f"buffer {name!r} must have its shape before clients train, it has {tuple(tensor.shape)} only "
                "afterwards: register it in `__init__`, or with persistent=False if it is only a cache."
            )
        return False

    def _known(self, name: str, tensor: torch.Tensor) -> bool:
        return name in self._start and self._start[name].shape == tensor.shape
