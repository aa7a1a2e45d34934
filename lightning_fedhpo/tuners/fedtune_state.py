"""FedTune's state in one arm: a policy for each client, and the global models by joint configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from lightning_fedhpo.tuners import fedtune_policy as policy
from lightning_fedhpo.tuners.model_buffer import ModelBuffer

ARRAYS = ("logits", "first", "second", "credits")
"""The attributes that are saved as tensors."""


@dataclass
class FedTuneState:
    """The policies of an arm's clients."""

    logits: policy.Array  # one row a client, one column a candidate
    first: policy.Array  # Adam's moments
    second: policy.Array
    credits: policy.Array  # of the last round (equation 12), nan for a client that had none
    buffer: ModelBuffer
    steps: int = 0
    decided: policy.Array = field(default_factory=lambda: np.zeros(0))  # this round's candidates, or relaxed weights
    cohort: Sequence[int] = ()  # the clients of this round: not all in a `fast_dev_run`

    @classmethod
    def uniform(cls, clients: int, candidates: int, buffer: ModelBuffer) -> FedTuneState:
        """Return uniform policies."""
        logits, first, second = np.zeros((3, clients, candidates))
        return cls(logits, first, second, np.full(clients, np.nan), buffer)

    @property
    def joint(self) -> tuple[int, ...]:
        """The present round's joint configuration."""
        return tuple(int(place) for place in self.decided)

    def step(self, gradient: policy.Array, lr: float, optimizer: Literal["sgd", "adam"]) -> None:
        """Step against a gradient on the logits."""
        self.steps += 1
        if optimizer == "adam":
            gradient, self.first, self.second = policy.adam_step(gradient, self.first, self.second, self.steps)
        self.logits = self.logits - lr * gradient

    def figures(self) -> dict[str, float]:
        """Return the mean entropy, and every client's most likely candidate, its probability and the last credit."""
        chances = policy.softmax(self.logits)
        logs = np.log(np.maximum(chances, 1e-300))
        found: dict[str, float] = {"fedtune/entropy": float(-(chances * logs).sum(axis=1).mean())}
        for client, (row, credit) in enumerate(zip(chances, self.credits, strict=True)):
            place = int(row.argmax())
            found[f"fedtune/client/{client}/argmax"] = place
            found[f"fedtune/client/{client}/probability"] = float(row[place])
            found[f"fedtune/client/{client}/credit"] = float(credit)
        return found

    def rows(self, candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return a row for every client and candidate."""
        return [
            {
                "client": client,
                "config": place,
                **config,
                "probability": float(row[place]),
                "argmax": bool(place == row.argmax()),
                "credit": float(self.credits[client]),
            }
            for client, row in enumerate(policy.softmax(self.logits))
            for place, config in enumerate(candidates)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return what the next round depends on."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in ARRAYS}
        return {**arrays, "steps": self.steps, "buffer": self.buffer.state_dict()}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any], buffer: ModelBuffer) -> FedTuneState:
        """Build the state from a checkpoint, with an empty buffer to fill."""
        buffer.load_state_dict(saved["buffer"])
        arrays = {name: saved[name].numpy().copy() for name in ARRAYS}
        return cls(**arrays, steps=saved["steps"], buffer=buffer)
