"""Searches whose arms come one after another, each asked for with the last scores of those before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from lightning_fedhpo.arguments import whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.searches.base import Draft, Search, arms_of
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import RoundContext


class AskedSearch(Search):
    """Base of searches that train every arm for the same number of rounds, and ask for the next ones with the scores.

    Args:
        space: The hyperparameters that are asked for every arm.
        budget: Rounds of single arms in all.
        max_rounds: Rounds of each arm.
        parallel: How many arms are trained at a time. They are asked for together, without each other's scores.
        per_client: Ask for a client configuration for every client of the federation.

    Attributes:
        arms: How many arms the budget covers.
    """

    def __init__(
        self, space: SearchSpace, budget: int, max_rounds: int, parallel: int = 1, per_client: bool = False
    ) -> None:
        super().__init__(space, budget, per_client)
        self.max_rounds = whole("max_rounds", max_rounds)
        self.arms = arms_of(self.budget, self.max_rounds)
        self.parallel = whole("parallel", parallel)
        if parallel > self.arms:
            raise ValueError(
                f"`parallel` must be from 1 to the number of arms, which is {self.arms} with budget={budget} and "
                f"max_rounds={max_rounds}, got {parallel}."
            )
        self.starts = self.parallel
        self.keeps_start = self.parallel < self.arms
        self.rounds = -(-self.arms // self.parallel) * self.max_rounds  # batches of arms run in turn
        self.spends = self.arms * self.max_rounds

    @abstractmethod
    def ask(self, arms: Sequence[Arm], count: int, context: RoundContext) -> list[Draft]:
        """Return so many arms to try next, given those that have had their rounds."""

    def settings_within(self, rounds: int) -> dict[str, int]:
        """Return settings with which as many batches of arms take at most so many rounds; else one round for each."""
        longest = rounds * self.max_rounds // self.rounds
        arms = self.arms if longest else rounds * self.parallel
        return {"max_rounds": longest or 1, "budget": (longest or 1) * arms} if rounds > 0 else {}

    def begin(self, arms: Sequence[Arm], context: RoundContext) -> list[Draft]:
        """Ask for the next arms once the present ones have had their rounds."""
        if any(arm.live for arm in arms):
            return []
        return self.ask(arms, min(self.parallel, self.arms - len(arms)), context)

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Finish the arms that have had their rounds."""
        for arm in arms:
            arm.finished |= arm.rounds >= self.max_rounds
        return []

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether all arms have had their rounds."""
        return len(arms) == self.arms and all(arm.finished for arm in arms)
