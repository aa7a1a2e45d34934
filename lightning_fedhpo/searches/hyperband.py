"""Hyperband: brackets of successive halving, from many short arms to few long ones, over one ledger.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 2018. Deviation: brackets
run in turn as long as the budget covers them whole; with the default budget that is all of them.

With ``sampler="tpe"`` it is like BOHB (Falkner et al., "BOHB: Robust and Efficient Hyperparameter Optimization at
Scale", ICML 2018): the arms of a bracket are asked from a model of the earlier ones, of their scores at the latest end
of a rung that enough of them have reached, which is the number of hyperparameters and three more. Deviations: the model
is Optuna's TPE, a bracket's arms are asked together, and exactly every third is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, number, whole
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.scores import discounted, ranked
from lightning_fedhpo.searches.base import Draft, Search, check_arms
from lightning_fedhpo.searches.optuna_study import ask_arms, check_installed, dimensions_of
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import RoundContext


@dataclass(frozen=True)
class Bracket:
    """One run of successive halving.

    Attributes:
        sizes: How many arms are in each rung.
        ends: The arm's round at which each rung ends.
    """

    sizes: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def cost(self) -> int:
        """Rounds of single arms."""
        begins = (0, *self.ends)
        return sum(size * (end - begins[rung]) for rung, (size, end) in enumerate(zip(self.sizes, self.ends)))  # noqa: B905 - alike


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
        space: What is drawn for every arm.
        eta: One of so many arms survives a rung.
        max_rounds: Rounds of the longest arms.
        budget: Rounds of single arms in all; by default what all brackets take. Brackets that it does not cover whole
            are left out, the last ones first.
        discount: As in successive halving.
        per_client: Draw the client part anew for every client of the federation.
        sampler: ``"random"`` draws every arm; ``"tpe"`` asks Optuna (extra ``bayes``) for arms of the later brackets.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> search = Hyperband(SearchSpace(server={"lr": Float(0.1, 1.0)}), eta=3, max_rounds=9)
        >>> search.budget, search.rounds
        (69, 27)
    """

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
        total = sum(bracket.cost for bracket in planned)
        super().__init__(space, total if budget is None else budget, per_client)
        self.brackets: list[Bracket] = []
        for bracket in planned:
            if self.spends + bracket.cost > self.budget:
                break
            self.brackets.append(bracket)
        if not self.brackets:
            raise ValueError(
                f"`budget` must cover the first bracket, which takes {planned[0].cost} rounds of single arms with "
                f"max_rounds={max_rounds} and eta={eta}, got {budget}: raise it or take fewer max_rounds."
            )
        check_arms(sum(bracket.sizes[0] for bracket in self.brackets), eta=self.eta, max_rounds=self.max_rounds)

    @property
    def keeps_start(self) -> bool:
        """Brackets start after one another."""
        return True

    @property
    def starts(self) -> int:
        """The arms of the first round."""
        return self.brackets[0].sizes[0]

    @property
    def rounds(self) -> int:
        """The rounds of all brackets' longest arms, since brackets run in turn."""
        return sum(bracket.ends[-1] for bracket in self.brackets)

    @property
    def spends(self) -> int:
        """The rounds of all arms together."""
        return sum(bracket.cost for bracket in self.brackets)

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
        """Return the arms that the next ones are asked by, with their losses; none where there are too few."""
        enough = len(dimensions_of(self)) + 3
        for end in sorted({end for bracket in self.brackets for end in bracket.ends}, reverse=True):
            reached = [(arm, sign * arm.scores[end - 1]) for arm in arms if len(arm.scores) >= end]
            if sum(math.isfinite(loss) for _, loss in reached) >= enough:
                return reached
        return []

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Take arms out after a rung, and let the bracket's last ones rest when it is over."""
        live = [arm for arm in arms if arm.live]
        bracket = self.brackets[self._started(arms) - 1]
        rounds = live[0].rounds
        if rounds not in bracket.ends:
            return []
        rung = bracket.ends.index(rounds)
        if rung + 1 == len(bracket.ends):
            for arm in live:
                arm.finished = True
            return []
        since = rounds - (bracket.ends[rung - 1] if rung else 0)
        scores = [context.sign * discounted(arm.scores[-since:], self.discount) for arm in live]
        return ranked(live, scores)[bracket.sizes[rung + 1] :]

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the last bracket is over."""
        return self._started(arms) == len(self.brackets) and not any(arm.live for arm in arms)

    def _started(self, arms: Sequence[Arm]) -> int:
        started, count = 0, 0
        while count < len(arms):
            count += self.brackets[started].sizes[0]
            started += 1
        return started

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        return {
            **super().identity(),
            "eta": self.eta,
            "max_rounds": self.max_rounds,
            "discount": self.discount,
            "sampler": self.sampler,
        }
