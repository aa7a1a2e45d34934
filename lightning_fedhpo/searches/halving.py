"""Successive halving: many arms start, and only the best part of them survives each rung.

Jamieson & Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016, as
Algorithm 1 of the FedEx paper adapts it: an arm's score is its cohort's loss in the round of the elimination, or a
discounted mean over the rounds since the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_fedhpo.arguments import number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.scores import deciding, discounted, ranked, scored
from lightning_fedhpo.searches.base import Search, check_arms
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import RoundContext


@dataclass(frozen=True)
class Bracket:
    """One run of successive halving."""

    sizes: tuple[int, ...]  # the number of arms in each rung
    ends: tuple[int, ...]  # the arms' round after which each rung ends

    @property
    def cost(self) -> int:
        """Rounds of single arms."""
        begins = (0, *self.ends[:-1])
        return sum(size * (end - begin) for size, begin, end in zip(self.sizes, begins, self.ends, strict=True))

    def eliminated(self, live: Sequence[Arm], sign: float, discount: float) -> list[Arm]:
        """Return the arms to take out: after a rung's last round all but the best, by the scores of that rung."""
        rounds = live[0].rounds
        if rounds not in self.ends[:-1]:
            return []
        rung = self.ends.index(rounds)
        length = rounds - (self.ends[rung - 1] if rung else 0)
        losses = [sign * discounted(scored(arm.scores)[-length:], discount) for arm in live]
        losses = deciding(losses, [arm.scores for arm in live], sign)
        return ranked(live, losses)[self.sizes[rung + 1] :]


def rung_ends(budget: int, max_rounds: int, eta: int, eliminations: int) -> list[int]:
    """Return the rounds after which arms are taken out, and at last ``max_rounds``.

    All rungs but the last have the same length, as long as the budget allows. What integer division leaves over goes to
    the first rung, then to the second, and so on.

    >>> rung_ends(4000, 800, eta=3, eliminations=3), rung_ends(2000, 200, eta=3, eliminations=3)
    ([89, 177, 268, 800], [50, 100, 150, 200])
    """
    # A round of rung r costs one for each of its eta**(R-r) arms, and saves the survivor one of its max_rounds.
    costs = [eta ** (eliminations - rung) - 1 for rung in range(eliminations)]
    length, left = divmod(budget - max_rounds, sum(costs))
    ends, end = [], 0
    for cost in costs:
        extra, left = divmod(left, cost)
        end += length + extra
        ends.append(end)
    ends.append(max_rounds)
    if ends[0] < 1 or any(after <= before for before, after in zip(ends, ends[1:], strict=False)):
        raise ValueError(
            f"the rungs must end one after another, got {ends} for budget={budget}, max_rounds={max_rounds}, "
            f"eta={eta}, eliminations={eliminations}: {eta**eliminations} arms at first and one arm to round "
            f"{max_rounds} need a budget of at least {max_rounds + sum(costs)}, and this budget leaves the last arm "
            f"alone at round {ends[-2]}, which must be before max_rounds. Change the budget, raise max_rounds, or take "
            "fewer eliminations."
        )
    return ends


class SuccessiveHalving(Search):
    """Start ``eta ** eliminations`` arms and keep one of ``eta`` after each rung.

    Args:
        space: The hyperparameters that are drawn for every arm.
        eta: One of so many arms survives an elimination.
        eliminations: The number of eliminations.
        budget: Rounds of single arms in all.
        max_rounds: Rounds of the survivor.
        discount: Weight of a round's score relative to the next one's at an elimination: 0 takes the last round alone,
            1 the mean since the last elimination.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> space = SearchSpace(server={"lr": Float(0.1, 10.0, log=True)})
        >>> SuccessiveHalving(space, eta=3, eliminations=3, budget=4000, max_rounds=800).rungs
        [89, 177, 268, 800]
    """

    settings = ("eta", "eliminations", "max_rounds", "discount")

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
        self.eliminations = whole("eliminations", eliminations, high=20)  # 2**20 is above MOST_ARMS
        self.max_rounds = self.rounds = whole("max_rounds", max_rounds)
        self.discount = number("discount", discount, 0, 1)
        self.starts: int = self.eta**self.eliminations
        check_arms(self.starts, eta=self.eta, eliminations=self.eliminations)
        self.rungs = rung_ends(self.budget, self.max_rounds, self.eta, self.eliminations)
        sizes = tuple(self.starts // self.eta**rung for rung in range(len(self.rungs)))
        self._bracket = Bracket(sizes, tuple(self.rungs))
        self.spends = self._bracket.cost

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Take out all but the best after a rung's last round."""
        return self._bracket.eliminated([arm for arm in arms if arm.live], context.sign, self.discount)

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the survivor has had its rounds."""
        return any(arm.live and arm.rounds >= self.max_rounds for arm in arms)
