"""Hyperband: brackets of successive halving, from many short arms to few long ones, over one ledger.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 2018. Deviation: brackets
run in turn as long as the budget covers them whole; the default budget covers all of them.

With ``sampler="tpe"`` it is like BOHB (Falkner et al., "BOHB: Robust and Efficient Hyperparameter Optimization at
Scale", ICML 2018): a model of the earlier arms proposes those of a bracket. The model uses scores at the latest end of
a rung that enough arms have reached: as many as there are hyperparameters, and three more. Deviations: the model is
Optuna's TPE, the arms of a bracket are proposed together, and exactly every third is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.searches.base import Draft, Search, check_arms
from lightning_fedhpo.searches.halving import Bracket
from lightning_fedhpo.searches.optuna_study import ask_arms, check_installed, dimensions_of
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import RoundContext


def brackets(max_rounds: int, eta: int) -> list[Bracket]:
    """Return Hyperband's brackets, the one with most arms first.

    >>> [(bracket.sizes, bracket.ends) for bracket in brackets(9, eta=3)]
    [((9, 3, 1), (1, 3, 9)), ((5, 1), (3, 9)), ((3,), (9,))]
    """
    most = 0
    while eta ** (most + 1) <= max_rounds:
        most += 1
    found = []
    for rungs in range(most, -1, -1):
        arms = -(-(most + 1) * eta**rungs // (rungs + 1))
        sizes = tuple(max(1, arms // eta**rung) for rung in range(rungs + 1))
        ends = tuple(round(max_rounds / eta ** (rungs - rung)) for rung in range(rungs + 1))
        found.append(Bracket(sizes, ends))
    return found


class Hyperband(Search):
    """Run Hyperband's brackets one after another.

    Args:
        space: The hyperparameters that are drawn for every arm.
        eta: One of so many arms survives a rung.
        max_rounds: Rounds of the longest arms.
        budget: Rounds of single arms in all; by default enough for all brackets. The last brackets are left out where
            it does not cover them whole.
        discount: As in successive halving.
        per_client: Draw the client part for every client of the federation.
        sampler: ``"random"`` draws every arm; ``"tpe"`` asks Optuna (extra ``bayes``) for arms of the later brackets.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> search = Hyperband(SearchSpace(server={"lr": Float(0.1, 1.0)}), eta=3, max_rounds=9)
        >>> search.budget, search.rounds
        (69, 27)
    """

    keeps_start = True
    settings = ("eta", "max_rounds", "discount", "sampler")

    def __init__(
        self,
        space: SearchSpace,
        eta: int = 3,
        max_rounds: int = 81,
        budget: int | None = None,
        discount: float = 0.0,
        per_client: bool = False,
        sampler: Literal["random", "tpe"] = "random",
    ) -> None:
        check_kinds(Hyperband, locals())
        self.eta = whole("eta", eta, low=2, why="with 1 no arm is ever eliminated")
        self.max_rounds = whole("max_rounds", max_rounds, high=10**6)
        self.discount = number("discount", discount, 0, 1)
        self.sampler = sampler
        if sampler == "tpe":
            check_installed('Hyperband(sampler="tpe")')
        planned = brackets(self.max_rounds, self.eta)
        spent = list(accumulate(bracket.cost for bracket in planned))
        super().__init__(space, spent[-1] if budget is None else budget, per_client)
        covered = sum(total <= self.budget for total in spent)
        if not covered:
            raise ValueError(
                f"`budget` must cover the first bracket, which takes {spent[0]} rounds of single arms with "
                f"max_rounds={max_rounds} and eta={eta}, got {budget}: raise it or take fewer max_rounds."
            )
        self.brackets = planned[:covered]
        self.starts = self.brackets[0].sizes[0]
        self.spends = spent[covered - 1]
        self.rounds = sum(bracket.ends[-1] for bracket in self.brackets)  # brackets run in turn
        check_arms(sum(bracket.sizes[0] for bracket in self.brackets), eta=self.eta, max_rounds=self.max_rounds)

    def settings_within(self, rounds: int) -> dict[str, int]:
        """Return the longest arms with which all brackets take at most so many rounds."""
        several = ((one, min(rounds // (one + 1), self.eta ** (one + 1) - 1)) for one in range(20))
        longest = max((most for one, most in several if most >= self.eta**one), default=0)  # with one + 1 brackets
        return {"max_rounds": longest} if longest else {}

    def begin(self, arms: Sequence[Arm], context: RoundContext) -> list[Draft]:
        """Start the next bracket once the one before is over."""
        if any(arm.live for arm in arms):
            return []
        bracket = self.brackets[self._started(arms)]
        drafts = [self.draft(len(arms) + place, context.seed) for place in range(bracket.sizes[0])]
        if self.sampler == "tpe" and (tried := self._tried(arms, context.sign)):
            places = [place for place in range(len(drafts)) if place % 3 != 2]
            seed = seeding.key(context.seed, seeding.ASKED, arm=len(arms))
            asked = ask_arms(self, tried, len(places), sampler="tpe", startup=1, seed=seed)
            for place, draft in zip(places, asked, strict=True):
                drafts[place] = draft
        return drafts

    def _tried(self, arms: Sequence[Arm], sign: float) -> list[tuple[Arm, float]]:
        """Return the arms that the model is built from, with their losses; none where there are too few."""
        enough = len(dimensions_of(self)) + 3
        for end in sorted({end for bracket in self.brackets for end in bracket.ends}, reverse=True):
            reached = [(arm, sign * arm.scores[end - 1]) for arm in arms if len(arm.scores) >= end]
            if sum(math.isfinite(loss) for _, loss in reached) >= enough:
                return reached
        return []

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Take arms out after a rung, and finish the bracket's last ones when it is over."""
        live = [arm for arm in arms if arm.live]
        bracket = self.brackets[self._started(arms) - 1]
        for arm in live:
            arm.finished = arm.rounds == bracket.ends[-1]
        return bracket.eliminated(live, context.sign, self.discount)

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the last bracket is over."""
        return self._started(arms) == len(self.brackets) and not any(arm.live for arm in arms)

    def _started(self, arms: Sequence[Arm]) -> int:
        """Return how many brackets the arms are of."""
        sizes = accumulate(bracket.sizes[0] for bracket in self.brackets)
        return sum(size <= len(arms) for size in sizes)
