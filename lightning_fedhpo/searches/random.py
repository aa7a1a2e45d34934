"""Random search: arms are drawn, run to their end, and compared by their last score.

The baseline of the FedEx papers: ``budget // max_rounds`` arms of ``max_rounds`` rounds each.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightning_fedhpo.arguments import whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.searches.base import Search, arms_of
from lightning_fedhpo.space.search_space import SearchSpace


class RandomSearch(Search):
    """Draw arms and train each of them for the same number of rounds.

    Args:
        space: The hyperparameters that are drawn for every arm.
        budget: Rounds of single arms in all; None gives ten arms.
        max_rounds: Rounds of each arm.
        per_client: Draw the client part for every client of the federation.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> search = RandomSearch(SearchSpace(server={"lr": Float(0.1, 1.0)}), budget=100, max_rounds=30)
        >>> search.arms, search.spends
        (3, 90)
    """

    settings = ("max_rounds",)

    def __init__(self, space: SearchSpace, budget: int | None, max_rounds: int, per_client: bool = False) -> None:
        self.max_rounds = self.rounds = whole("max_rounds", max_rounds)
        super().__init__(space, 10 * self.max_rounds if budget is None else budget, per_client)
        self.arms = self.starts = arms_of(self.budget, self.max_rounds)
        self.spends = self.arms * self.max_rounds

    def settings_within(self, rounds: int) -> dict[str, int]:
        """Return settings with which as many arms take at most so many rounds."""
        return {"max_rounds": rounds, "budget": rounds * self.arms} if rounds > 0 else {}

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the arms have had their rounds."""
        return bool(arms) and all(arm.rounds >= self.max_rounds for arm in arms)
