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
    costs = _costs(eta, eliminations)
    length, left = divmod(budget - max_rounds, sum(costs))
    ends, end = [], 0
    for cost in costs:
        extra, left = divmod(left, cost)
        end += length + extra
        ends.append(end)
    return [*ends, max_rounds]


def equal_rungs(max_rounds: int, eta: int, eliminations: int) -> int:
    """Return the budget with which all rungs have the same length, but for a longer last one where it is not whole.

    >>> equal_rungs(200, eta=3, eliminations=3), equal_rungs(3, eta=3, eliminations=3)
    (2000, 3)
    """
    return max_rounds + max_rounds // (eliminations + 1) * sum(_costs(eta, eliminations))


def _costs(eta: int, eliminations: int) -> list[int]:
    """Return the budget's rounds that one more round of each rung takes.

    It costs one for each of the rung's arms, and saves the survivor one of its max_rounds.
    """
    return [eta ** (eliminations - rung) - 1 for rung in range(eliminations)]


def _fits(ends: Sequence[int]) -> bool:
    return ends[0] >= 1 and all(after > before for before, after in zip(ends, ends[1:], strict=False))


class SuccessiveHalving(Search):
    """Start ``eta ** eliminations`` arms and keep one of ``eta`` after each rung.

    Args:
        space: The hyperparameters that are drawn for every arm.
        eta: One of so many arms survives an elimination.
        eliminations: The number of eliminations.
        budget: Rounds of single arms in all; by default as many as rungs of equal length take, such as 2000 for 27 arms
            and 200 rounds.
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
        budget: int | None = None,
        max_rounds: int = 800,
        discount: float = 0.0,
    ) -> None:
        self.eta = whole("eta", eta, low=2, why="with 1 no arm is ever eliminated")
        self.eliminations = whole("eliminations", eliminations, high=20)  # 2**20 is above MOST_ARMS
        self.max_rounds = self.rounds = whole("max_rounds", max_rounds)
        self.discount = number("discount", discount, 0, 1)
        self.starts: int = self.eta**self.eliminations
        check_arms(self.starts, eta=self.eta, eliminations=self.eliminations)
        equal = equal_rungs(self.max_rounds, self.eta, self.eliminations)
        super().__init__(space, equal if budget is None else budget)
        self.rungs = rung_ends(self.budget, self.max_rounds, self.eta, self.eliminations)
        if not _fits(self.rungs):
            raise ValueError(self._way_out())
        sizes = tuple(self.starts // self.eta**rung for rung in range(len(self.rungs)))
        self._bracket = Bracket(sizes, tuple(self.rungs))
        self.spends = self._bracket.cost

    def settings_within(self, rounds: int) -> dict[str, int]:
        """Return settings with which the survivor takes at most so many rounds."""
        budget = equal_rungs(rounds, self.eta, self.eliminations)
        return {"max_rounds": rounds, "budget": budget} if rounds > self.eliminations else {}

    def _way_out(self) -> str:
        eta, eliminations, least = self.eta, self.eliminations, self.eliminations + 1
        # A budget for rungs of equal length has so many rounds for each round of the survivor.
        share = equal_rungs(least, eta, eliminations) / least
        near = range(max(least, int(self.budget / share)), self.budget)[: 2 * least]
        fits = [most for most in near if _fits(rung_ends(self.budget, most, eta, eliminations))]
        ways = [{"max_rounds": fits[0]}] if fits else []
        if self.max_rounds >= least:
            ways.insert(0, {"budget": equal_rungs(self.max_rounds, eta, eliminations)})
        ways = ways or [self.settings_within(least)]
        texts = (", ".join(f"{name}={value}" for name, value in way.items()) for way in ways)
        return (
            f"the rungs must end one after another, got {self.rungs} for budget={self.budget}, "
            f"max_rounds={self.max_rounds}, eta={eta}, eliminations={eliminations}: {self.starts} arms take at least "
            f"{least} rounds, one for each rung. Take {' or '.join(f'SuccessiveHalving({way})' for way in texts)}, or "
            "fewer eliminations."
        )

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Take out all but the best after a rung's last round."""
        return self._bracket.eliminated([arm for arm in arms if arm.live], context.sign, self.discount)

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the survivor has had its rounds."""
        return any(arm.live and arm.rounds >= self.max_rounds for arm in arms)
