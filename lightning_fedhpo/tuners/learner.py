"""What FedTune has learned of the clients of one arm: a policy for each, and the global models by configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from lightning_fedhpo.tuners import policy
from lightning_fedhpo.tuners.model_buffer import ModelBuffer

ARRAYS = ("logits", "first", "second", "credits")
"""What is saved as tensors."""


@dataclass
class Learner:
    """The policies of an arm's clients.

    Attributes:
        logits: One row a client, one column a candidate.
        first: Adam's first moment.
        second: Adam's second moment.
        steps: Steps taken.
        credits: Every client's credit of the last round (equation 12), nan where it had none.
        buffer: The global models.
        decided: In the present round, every client's candidate, or with the concrete relaxation its weights.
        cohort: The clients of the present round: all, but for a fast trial run's.
    """

    logits: policy.Array
    first: policy.Array
    second: policy.Array
    steps: int
    credits: policy.Array
    buffer: ModelBuffer
    decided: policy.Array | None = None
    cohort: Sequence[int] = ()

    @classmethod
    def begun(cls, clients: int, candidates: int, buffer: ModelBuffer) -> Learner:
        """Return uniform policies."""
        zeros = np.zeros((clients, candidates))
        return cls(zeros, zeros.copy(), zeros.copy(), 0, np.full(clients, np.nan), buffer)

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
        """Return a row for every client and candidate: the values, the probability, and which is the most likely."""
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
        """Return logits, the optimizer's moments, the last credits and the global models."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in ARRAYS}
        return {**arrays, "steps": self.steps, "buffer": self.buffer.state_dict()}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any], buffer: ModelBuffer) -> Learner:
        """Return the policies of a checkpoint, with their models in an empty buffer."""
        buffer.load_state_dict(saved["buffer"])
        logits, first, second, credits = (saved[name].numpy().copy() for name in ARRAYS)
        return cls(logits, first, second, saved["steps"], credits, buffer)
