"""Weight sharing with multiplicative weights.

"Weight Sharing for Hyperparameter Optimization beyond Neural Architecture Search", 2020 (section on federated
learning): ``p_c *= exp(-s_i / sqrt(n))`` for every client i that trained with c, s_i its mean validation loss, n the
number of rounds planned. The paper's aggregate is the plain mean of the cohort's models: give the algorithm
``weighting="uniform"`` for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, whole
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.exponentiated import LARGEST, MOST_CONFIGS, Logs, entropy, normalised, sampled
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion


def reweighted(z: Logs, chosen: Sequence[int], losses: Sequence[float], rounds: int) -> Logs:
    """Return log-probabilities after ``p_c *= exp(-s / sqrt(n))`` for every choice and its loss, normalised.

    >>> z = reweighted(np.log([0.5, 0.5]), chosen=[0], losses=[2 * math.log(3)], rounds=4)
    >>> np.exp(z).round(6).tolist()
    [0.25, 0.75]
    """
    moved = z.copy()
    for place, loss in zip(chosen, losses, strict=True):
        moved[place] = max(-LARGEST, min(LARGEST, moved[place] - loss / math.sqrt(rounds)))
    return normalised(moved)


class MultiplicativeWeights(Tuner):
    """Draw configurations by weights that shrink with the losses of the clients that used them.

    Args:
        space: Its client part is tuned.
        configs: How many configurations are drawn from it, uniformly.
        rounds: The number of rounds planned, n; by default the Trainer's ``max_epochs``.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> MultiplicativeWeights(SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}), configs=10).client_names
        ('lr',)
    """

    def __init__(self, space: SearchSpace, configs: int = 27, rounds: int | None = None) -> None:
        check_kinds(MultiplicativeWeights, locals())
        if not space.client:
            raise ValueError("`space` must be a SearchSpace with a client part: client hyperparameters are tuned.")
        self.space: SearchSpace = space
        self.size = whole("configs", configs, high=MOST_CONFIGS)
        self.rounds = None if rounds is None else whole("rounds", rounds)
        self.client_names = tuple(space.client)
        self.needs_scores = True
        self._planned = self.rounds or 1
        self._weights: dict[int, Logs] = {}
        self._candidates: dict[int, list[dict[str, Any]]] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the number of rounds from the Trainer, where it is not given."""
        super().setup(trainer, pl_module, stage)
        if stage != "fit" or self.rounds is not None:
            return
        if not trainer.max_epochs or trainer.max_epochs < 0:
            raise MisconfigurationException(
                "the step of multiplicative weights depends on the number of rounds, which Trainer(max_epochs="
                f"{trainer.max_epochs}) leaves open: give MultiplicativeWeights(rounds=...)."
            )
        self._planned = trainer.max_epochs

    def reset(self) -> None:
        """Forget every arm."""
        self._weights, self._candidates = {}, {}

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Draw a configuration for every client."""
        z, candidates = self._state(arm.index, context.seed)
        draw = seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)
        places = [sampled(z, draw) for _ in cohort]
        return [Suggestion(candidates[place], place) for place in places]

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Shrink the weights of what was used, by the loss it led to."""
        z, _ = self._state(arm.index, context.seed)
        told = [
            (result.job.index or 0, context.sign * result.score_after)
            for result in results
            if result.score_after is not None and math.isfinite(result.score_after)
        ]
        chosen, losses = [place for place, _ in told], [loss for _, loss in told]
        self._weights[arm.index] = reweighted(z, chosen, losses, self._planned)

    def best(self, arm: Arm) -> Config:
        """Return the most likely configuration."""
        if arm.index not in self._weights:
            return {}
        return self._candidates[arm.index][int(self._weights[arm.index].argmax())]

    @property
    def probabilities(self) -> Tensor:
        """The best arm's probabilities."""
        return torch.from_numpy(np.exp(self._weights[self._shown()]))

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The configurations that the best arm chooses among."""
        return list(self._candidates[self._shown()])

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the entropy, the most likely configuration, and every probability."""
        z = self._weights[arm.index]
        found: dict[str, float] = {"multiplicative/entropy": entropy(z), "multiplicative/mle": int(z.argmax())}
        return found | {f"multiplicative/prob/{place}": float(chance) for place, chance in enumerate(np.exp(z))}

    def candidates(self, arm: Arm) -> dict[str, dict[str, Any]]:
        """Return the configuration behind every logged probability."""
        return {str(place): config for place, config in enumerate(self._candidates.get(arm.index, []))}

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        return {
            "name": "MultiplicativeWeights",
            "space": self.space.to_dict()["client"],
            "configs": self.size,
            "rounds": self._planned,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's weights and candidates."""
        return {
            "weights": {index: z.tolist() for index, z in self._weights.items()},
            "candidates": {index: list(configs) for index, configs in self._candidates.items()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back."""
        self._weights = {int(index): np.asarray(z, dtype=np.float64) for index, z in state_dict["weights"].items()}
        self._candidates = {int(index): list(configs) for index, configs in state_dict["candidates"].items()}

    def _shown(self) -> int:
        if self.leader is None or self.leader not in self._weights:
            raise RuntimeError("there are no weights yet: `trainer.fit` makes them for every arm.")
        return self.leader

    def _state(self, arm: int, seed: int) -> tuple[Logs, list[dict[str, Any]]]:
        if arm not in self._weights:
            draw = seeding.rng(seed, seeding.CONFIGS, arm=arm)
            self._candidates[arm] = [self.space.sample(draw, "client") for _ in range(self.size)]
            self._weights[arm] = normalised(np.zeros(self.size))
        return self._weights[arm], self._candidates[arm]
