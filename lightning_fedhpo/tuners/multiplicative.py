"""Weight sharing with multiplicative weights.

Khodak et al., "Weight-Sharing Beyond Neural Architecture Search", 2020, section 4.1:
``p_c *= exp(-s_i / sqrt(n))`` for every client i that trained with c, s_i its mean validation loss, n the number of
rounds planned. The paper's aggregate is the plain mean of the cohort's models: give the algorithm
``weighting="uniform"`` for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.exponentiated_gradient import LARGEST, Logs, normalised
from lightning_fedhpo.tuners.weight_sharing import MOST_CONFIGS, ArmState, WeightSharing
from lightning_fedhpo.types import ClientResult, RoundContext


def reweighted(z: Logs, chosen: Sequence[int], losses: Sequence[float], rounds: int) -> Logs:
    """Return log-probabilities after ``p_c *= exp(-s / sqrt(n))`` for every choice and its loss, normalised.

    >>> z = reweighted(np.log([0.5, 0.5]), chosen=[0], losses=[2 * math.log(3)], rounds=4)
    >>> np.exp(z).round(6).tolist()
    [0.25, 0.75]
    """
    moved = z.copy()
    for place, loss in zip(chosen, losses, strict=True):
        moved[place] = np.clip(moved[place] - loss / math.sqrt(rounds), -LARGEST, LARGEST)
    return normalised(moved)


class MultiplicativeWeights(WeightSharing):
    """Draw configurations by weights that shrink with the losses of the clients that used them.

    Args:
        space: Its client part is tuned; by default that of the search's space.
        configs: How many configurations are drawn from it, uniformly.
        rounds: The number of rounds planned, n; by default the Trainer's ``max_epochs``.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> MultiplicativeWeights(SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}), configs=10).client_names
        ('lr',)
    """

    prefix = "multiplicative"

    def __init__(self, space: SearchSpace | None = None, configs: int = 27, rounds: int | None = None) -> None:
        check_kinds(MultiplicativeWeights, locals())
        super().__init__(space)
        self.size = whole("configs", configs, high=MOST_CONFIGS)
        self.rounds = None if rounds is None else whole("rounds", rounds)
        self.planned = self.rounds or 1

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
        self.planned = trainer.max_epochs

    def start(self, arm: int, seed: int) -> ArmState:
        """Draw an arm's configurations."""
        draw = seeding.rng(seed, seeding.CONFIGS, arm=arm)
        return ArmState.uniform([[self.space.sample(draw, "client") for _ in range(self.size)]])

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Shrink the weights of the configurations that were used, by the losses they led to."""
        (distribution,) = self.state_of(arm, context.seed).distributions
        scored = self.losses(results, context.sign)
        chosen, losses = [result.job.index or 0 for result, _ in scored], [loss for _, loss in scored]
        distribution.z = reweighted(distribution.z, chosen, losses, self.planned)

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        return {**super().identity(), "configs": self.size, "rounds": self.planned}
