"""Random search: arms that are drawn, run to their end, and compared by their last score.

The baseline of the FedEx papers: ``budget // max_rounds`` arms of ``max_rounds`` rounds each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_fedhpo.arguments import whole
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.searches.base import Draft, Search, arms_of
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import RoundContext


class RandomSearch(Search):
    """Draw arms and train each of them for the same number of rounds.

    Args:
        space: What is drawn for every arm.
        budget: Rounds of single arms in all.
        max_rounds: Rounds of each arm.
        per_client: Draw the client part anew for every client of the federation.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> search = RandomSearch(SearchSpace(server={"lr": Float(0.1, 1.0)}), budget=100, max_rounds=30)
        >>> search.arms, search.spends
        (3, 90)
    """

    def __init__(self, space: SearchSpace, budget: int, max_rounds: int, per_client: bool = False) -> None:
        super().__init__(space, budget, per_client)
        self.max_rounds = whole("max_rounds", max_rounds)
        self.arms = arms_of(self.budget, self.max_rounds)

    @property
    def starts(self) -> int:
        """The arms of the first round."""
        return self.arms

    @property
    def rounds(self) -> int:
        """The rounds of each arm."""
        return self.max_rounds

    @property
    def spends(self) -> int:
        """All arms' rounds."""
        return self.arms * self.max_rounds

    def begin(self, arms: Sequence[Arm], context: RoundContext) -> list[Draft]:
        """Start all arms before the first round."""
        return [] if arms else [self.draft(arm, context.seed) for arm in range(self.arms)]

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Take none out."""
        return []

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the arms have had their rounds."""
        return bool(arms) and all(arm.rounds >= self.max_rounds for arm in arms)

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        return {**super().identity(), "max_rounds": self.max_rounds}
