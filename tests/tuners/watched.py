"""FedTune that keeps what its rounds were about, for tests that compute them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lightning_fedhpo import FedTune
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.types import ClientResult, RoundContext


class Watched(FedTune):
    """Keeps what goes into every round, and what comes out of it."""

    def reset(self) -> None:
        super().reset()
        self.rounds: list[dict[str, Any]] = []

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> Any:
        suggestions = super().suggest(arm, cohort, context)
        start = [tensor.detach().clone() for tensor in arm.weights]
        places = {client: one.index for client, one in zip(cohort, suggestions, strict=True)}
        self.rounds.append({"start": start, "places": places, "models": []})
        return suggestions

    def receive(self, arm: Arm, result: ClientResult) -> Mapping[str, Any] | None:
        model, job = [tensor.detach().clone() for tensor in result.weights], result.job
        own = {"client": job.client, "place": job.index, "w": model, "n": result.train_examples, "z": job.weight}
        self.rounds[-1]["models"].append(own)
        return super().receive(arm, result)

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        here, state = self.rounds[-1], self._state(arm)
        here["before"] = torch.from_numpy(state.logits.copy())
        here["aggregate"] = [tensor.detach().clone() for tensor in arm.weights]
        super().observe(arm, results, context)
        here["after"] = torch.from_numpy(state.logits.copy())
        here["credits"] = torch.from_numpy(state.credits.copy())
