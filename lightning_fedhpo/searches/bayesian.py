"""Bayesian optimisation: arms one after another, each proposed by a model of the earlier ones and their last scores.

The baseline of the FedTune paper, with Optuna's samplers: Gaussian processes, or tree-structured Parzen estimators
(Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.searches.asked import AskedSearch
from lightning_fedhpo.searches.base import Draft
from lightning_fedhpo.searches.optuna_study import ask_arms, check_installed, random_arms
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import RoundContext


class BayesianSearch(AskedSearch):
    """Ask Optuna for arms, train each of them for the same number of rounds, and tell it their last scores.

    The first third of the arms, at most ten, are drawn at random. An arm whose last score is not finite is reported as
    failed. Needs the extra ``bayes``. Gaussian processes take about 0.1 seconds an arm with ``OMP_NUM_THREADS=1`` in
    the environment, and up to some seconds where numpy and torch compete for the cores.

    Args:
        space: The hyperparameters that are asked for every arm.
        budget: Rounds of single arms in all.
        max_rounds: Rounds of each arm.
        sampler: ``"gp"``, Gaussian processes, or ``"tpe"``, tree-structured Parzen estimators.
        parallel: How many arms are trained at a time. More of them take fewer rounds of the Trainer, but they are asked
            together, without each other's scores.
        per_client: Ask for a client configuration for every client of the federation.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> search = BayesianSearch(SearchSpace(server={"lr": Float(0.1, 1.0)}), budget=100, max_rounds=10, parallel=4)
        >>> search.arms, search.spends, search.rounds
        (10, 100, 30)
    """

    settings = ("max_rounds", "sampler", "parallel")

    def __init__(
        self,
        space: SearchSpace,
        budget: int = 300,
        max_rounds: int = 10,
        sampler: Literal["gp", "tpe"] = "gp",
        parallel: int = 1,
        per_client: bool = False,
    ) -> None:
        check_kinds(BayesianSearch, locals())
        super().__init__(space, budget, max_rounds, parallel, per_client)
        self.sampler = sampler
        check_installed(type(self).__name__)

    def ask(self, arms: Sequence[Arm], count: int, context: RoundContext) -> list[Draft]:
        """Ask Optuna's sampler."""
        tried = [(arm, context.sign * arm.scores[-1]) for arm in arms]
        seed = seeding.key(context.seed, seeding.ASKED, arm=len(arms))
        return ask_arms(self, tried, count, sampler=self.sampler, startup=random_arms(self.arms), seed=seed)
