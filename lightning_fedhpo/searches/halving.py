"""Successive halving: many arms at first, the best part of them after every rung.

Jamieson & Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016, as
Algorithm 1 of the FedEx paper adapts it: an arm's score is its cohort's loss in the round of the elimination, or a
discounted mean over the rounds since the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_fedhpo.arguments import number, whole
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.scores import discounted, ranked
from lightning_fedhpo.searches.base import Draft, Search, check_arms
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import RoundContext


def rung_ends(budget: int, max_rounds: int, eta: int, eliminations: int) -> list[int]:
    """Return the rounds after which arms are taken out, and at last ``max_rounds``.

    All rungs but the last are as long as the budget allows them to be alike; what integers leave over goes to the
    first, then the second, and so on.

    >>> rung_ends(4000, 800, eta=3, eliminations=3), rung_ends(2000, 200, eta=3, eliminations=3)
    ([89, 177, 268, 800], [50, 100, 150, 200])
    """
    # A round of rung r costs one for each of its eta**(R-r+1) arms, and saves the survivor one of its max_rounds.
    costs = [eta ** (eliminations - rung) - 1 for rung in range(eliminations)]
    spare = budget - max_rounds
    length, left = divmod(spare, sum(costs))
    ends, end = [], 0
    for cost in costs:
        extra, left = divmod(left, cost)
        end += length + extra
        ends.append(end)
    ends.append(max_rounds)
    if ends[0] < 1 or any(after <= before for before, after in zip(ends, ends[1:], strict=False)):
        arms = eta**eliminations
        raise ValueError(
            f"the rungs must end one after another, got {ends} for budget={budget}, max_rounds={max_rounds}, "
            f"eta={eta}, eliminations={eliminations}: {arms} arms at first and one arm to round {max_rounds} need a "
            f"budget of at least {max_rounds + sum(costs)}, and this budget leaves the last arm alone at round "
            f"{ends[-2]}, which must be before max_rounds. Change the budget, raise max_rounds, or take fewer "
            "eliminations."
        )
    return ends


class SuccessiveHalving(Search):
    """Start ``eta ** eliminations`` arms and keep the best of ``eta`` after each rung.

    Args:
        space: What is drawn for every arm.
        eta: One of so many arms survives an elimination.
        eliminations: The number of eliminations.
        budget: Rounds of single arms in all.
        max_rounds: Rounds of the survivor.
        discount: Weight of a round's score relative to the next one's in the score of an elimination: 0 is the last
            round alone, 1 the mean since the last elimination.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> space = SearchSpace(server={"lr": Float(0.1, 10.0, log=True)})
        >>> SuccessiveHalving(space, eta=3, eliminations=3, budget=4000, max_rounds=800).rungs
        [89, 177, 268, 800]
    """

    def __init__(
        self,
        space: SearchSpace,
        eta: int = 3,
        eliminations: int = 3,
        budget: int = 4000,
        max_rounds: int = 800,
        discount: float = 0.0,
    ) -> None:
        super().__init__(space, budget)
        self.eta = whole("eta", eta, low=2, why="with 1 no arm is ever eliminated")
        self.eliminations = whole("eliminations", eliminations, high=20)  # 2**20 arms are more than any search has
        self.max_rounds = whole("max_rounds", max_rounds)
        self.discount = number("discount", discount, 0, 1)
        check_arms(self.eta**self.eliminations, eta=self.eta, eliminations=self.eliminations)
        self.rungs = rung_ends(self.budget, self.max_rounds, self.eta, self.eliminations)

    @property
    def starts(self) -> int:
        """The arms of the first round."""
        return int(self.eta**self.eliminations)

    @property
    def rounds(self) -> int:
        """The survivor's rounds."""
        return self.max_rounds

    @property
    def spends(self) -> int:
        """The rounds of all arms together."""
        begins = [0, *self.rungs]
        return sum(self.eta ** (self.eliminations - rung) * (end - begins[rung]) for rung, end in enumerate(self.rungs))

    def begin(self, arms: Sequence[Arm], context: RoundContext) -> list[Draft]:
        """Start all arms before the first round."""
        return [] if arms else [self.draft(arm, context.seed) for arm in range(self.eta**self.eliminations)]

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Take out all but the best after a rung's last round."""
        live = [arm for arm in arms if arm.live]
        rounds = live[0].rounds
        if rounds not in self.rungs[:-1]:
            return []
        rung = self.rungs.index(rounds)
        since = rounds - (self.rungs[rung - 1] if rung else 0)
        scores = [context.sign * discounted(arm.scores[-since:], self.discount) for arm in live]
        return ranked(live, scores)[self.eta ** (self.eliminations - rung - 1) :]

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the survivor has had its rounds."""
        return any(arm.live and arm.rounds >= self.max_rounds for arm in arms)

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        return {
            **super().identity(),
            "eta": self.eta,
            "eliminations": self.eliminations,
            "max_rounds": self.max_rounds,
            "discount": self.discount,
        }
