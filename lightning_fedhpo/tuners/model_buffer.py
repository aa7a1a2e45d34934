"""FedTune's buffer of global models, one for each joint configuration; the most recently used are kept."""

from __future__ import annotations

from typing import Any, Literal

from lightning_fedhpo.arms.arm import Arm, Model

Key = tuple[int, ...]


class ModelBuffer:
    """Keeps global models by joint configuration (the paper's G[h]).

    Args:
        policy: ``"joint"`` begins an unseen configuration from the initial weights; ``"nearest"`` from the kept one
            that the fewest clients differ in, the latest of equals; ``"shared"`` has one model for all.
        capacity: How many models are kept; the least recently used is dropped.
    """

    def __init__(self, policy: Literal["joint", "shared", "nearest"], capacity: int) -> None:
        self.policy = policy
        self.capacity = capacity
        self._initial: Model | None = None
        self._models: dict[Key, Model] = {}  # in the order of their use, the latest last

    def fetch(self, arm: Arm, key: Key) -> None:
        """Load the model of a joint configuration into an arm; the buffer does not change."""
        if self.policy == "shared":
            return
        if self._initial is None:
            self._initial = arm.model()
        source = key
        if key not in self._models and self._models and self.policy == "nearest":
            latest_first = reversed(self._models)
            source = min(latest_first, key=lambda kept: sum(one != other for one, other in zip(kept, key, strict=True)))
        arm.restore(self._models.get(source, self._initial))

    def store(self, arm: Arm, key: Key) -> None:
        """Keep a copy of an arm's model under a joint configuration."""
        if self.policy == "shared":
            return
        self._models.pop(key, None)
        self._models[key] = arm.model()
        if len(self._models) > self.capacity:
            del self._models[next(iter(self._models))]

    def state_dict(self) -> dict[str, Any]:
        """Return the initial model, and the kept ones in the order of their use."""
        return {
            "initial": self._initial or {},
            "keys": [list(key) for key in self._models],
            "models": list(self._models.values()),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take the models back."""
        self._initial = saved["initial"] or None
        keys = [tuple(int(one) for one in key) for key in saved["keys"]]
        self._models = dict(zip(keys, saved["models"], strict=True))
