"""FedPop: a population of arms evolves, and so do the configurations of the clients inside each arm.

Chen et al., "FedPop: Federated Population-based Hyperparameter Tuning", AAAI 2025 (arXiv 2308.08634); the mathematics
is in :mod:`.evolution`. Where the paper is silent: the discount of earlier rounds' scores (gamma_g) is 0.9; a replaced
arm also copies the server optimizer's state; no arm is replaced after its last round; a score that is not finite is the
worst, and is never copied from. Of n arms floor(n / rho) are replaced; inclusive quantiles, another reading, would take
one more of ten. The ball around an arm's configuration is one interval per hyperparameter, as wide as
the first perturbations. The authors' program differs from the paper in many ways: see ``recipes/fedpop``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.scores import best_and_worst, discounted, scored
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import RunPlan, Tuner
from lightning_fedhpo.tuners.evolution import annealed, clip_to_ball, perturb_config
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion

LEVELS = ("g", "l")


@dataclass
class Member:
    """An arm of the population."""

    base: dict[str, Any]  # the clients' configuration, beta^0
    slots: list[dict[str, Any]] = field(default_factory=list)  # that of each place in the cohort, near the base
    scores: list[float] = field(default_factory=list)  # of each round the plain mean over the cohort's (equation 5)
    used: int = 0  # the number of places in the present round
    parent: int | None = None
    """The arm that this arm was copied from in this round; None if it was not replaced."""


class FedPop(Tuner):
    """Evolve client and server hyperparameters while the models are trained.

    The arms of :class:`~lightning_fedhpo.RandomSearch` or :class:`~lightning_fedhpo.SuccessiveHalving` are the
    population.

    Args:
        space: Both its parts are tuned; by default those of the search's space. The search draws the first server
            values.
        levels: ``"g"`` replaces the worst arms by perturbed copies of the best; ``"l"`` does the same to the
            configurations of a cohort's places inside each arm. Both, one or none.
        interval: Rounds between two replacements of arms: 1 is every round, 0.1 a tenth of the longest arm's rounds.
        rho: The worst 1/rho are replaced by copies of the best 1/rho.
        epsilon: How far values are perturbed at first, as a part of the space.
        resample: The probability with which a value is drawn anew instead, at first.
        discount: Weight of a round's score relative to the next one's when arms are compared.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> space = SearchSpace(client={"lr": Float(1e-4, 1.0, log=True)}, server={"lr": Float(0.1, 10.0, log=True)})
        >>> FedPop(space, interval=5).client_names
        ('lr',)
    """

    space: SearchSpace
    settings = ("levels", "interval", "rho", "epsilon", "resample", "discount")

    def __init__(
        self,
        space: SearchSpace | None = None,
        levels: Sequence[Literal["g", "l"]] = LEVELS,  # type: ignore[assignment]  # a tuple of these texts
        interval: float = 0.1,
        rho: int = 3,
        epsilon: float = 0.1,
        resample: float = 0.1,
        discount: float = 0.9,
    ) -> None:
        check_kinds(FedPop, locals())
        self.levels = list(levels)
        self.interval = number("interval", interval, above=0)
        if interval >= 1 and interval != int(interval):
            raise ValueError(f"`interval` must be whole rounds, or a part of the run below 1, got {interval}.")
        self.rho = whole("rho", rho, low=2, why="the worst 1/rho are replaced")
        self.epsilon = number("epsilon", epsilon, 0, 1)
        self.resample = number("resample", resample, 0, 1)
        self.discount = number("discount", discount, 0, 1)
        self.needs_scores = "l" in self.levels  # arms have scores of their own, which may be the server's
        self._rounds, self._target = 1, "personalized"
        self.own_space(space)
        self.reset()

    def use_space(self, space: SearchSpace) -> None:
        """Tune both parts of a space."""
        super().use_space(space)
        self.server_names = tuple(space.server) if "g" in self.levels else ()

    def reset(self) -> None:
        """Forget every arm."""
        self._members: dict[int, Member] = {}
        self._lineage: list[dict[str, Any]] = []

    def plan(self, plan: RunPlan) -> None:
        """Take the rounds of the longest arm, over which perturbations fade."""
        if not self.levels:
            return
        if plan.rounds is None:
            raise MisconfigurationException(
                "FedPop's perturbations fade over the rounds of an arm, which Trainer(max_epochs=-1) without a search "
                "leaves open: set max_epochs."
            )
        if "g" in self.levels and 1 <= self.interval >= plan.rounds:
            raise MisconfigurationException(
                f"`interval` must be within the run, got {self.interval} with arms of {plan.rounds} rounds: no arm "
                "would ever be replaced. Shorten it, or give a part such as interval=0.1."
            )
        for level, what, count in (("g", "arms", plan.arms), ("l", "of a cohort's places", plan.cohort)):
            if level in self.levels and count is not None and count < self.rho:
                rank_zero_warn(
                    f"FedPop(rho={self.rho}) replaces one of {self.rho} {what}, and the run has {count}: none will be "
                    f"replaced. Take more of them, or leave level {level!r} out."
                )
        self._rounds, self._target = plan.rounds, plan.target

    @property
    def every(self) -> int:
        """The rounds between two replacements of arms, T_g."""
        return int(self.interval) if self.interval >= 1 else max(1, round(self.interval * self._rounds))

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Suggest each place of the cohort its own configuration."""
        member = self._member(arm.index, context.seed)
        member.parent = None
        if "l" not in self.levels:
            return [Suggestion(member.base)] * len(cohort)
        ball = self._ball(member)
        draw = seeding.rng(context.seed, seeding.CONFIGS, context.round, arm.index)
        while len(member.slots) < len(cohort):
            member.slots.append(ball.sample(draw))
        member.used = len(cohort)
        return [Suggestion(slot, place) for place, slot in enumerate(member.slots[: len(cohort)])]

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Replace the worst places' configurations by perturbed ones of the best (FedPop-L)."""
        if not self.levels:
            return
        member = self._members[arm.index]
        member.scores.append(self._mean_score(arm, results, member.scores))
        if "l" not in self.levels:
            return
        scores = dict.fromkeys(range(member.used), math.inf)  # a client that was left out is the worst
        for result in results:
            place = result.job.index or 0
            if result.score_after is None:
                del scores[place]
            else:
                scores[place] = context.sign * result.score_after
        best, worst = best_and_worst(list(scores), list(scores.values()), self.rho)
        draw = seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)
        ball = self._ball(member).client
        before = [dict(slot) for slot in member.slots]
        for place in worst if best else ():
            source = before[best[int(draw.integers(len(best)))]]
            member.slots[place] = clip_to_ball(ball, self._perturbed("client", source, arm.rounds, draw), member.base)

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        """Replace the worst arms by perturbed copies of the best, every so many rounds (FedPop-G)."""
        if "g" not in self.levels or not arms or arms[0].rounds % self.every or arms[0].rounds >= self._rounds:
            return
        members = [self._members[arm.index] for arm in arms]
        scores = [context.sign * discounted(scored(one.scores)[-self.every :], self.discount) for one in members]
        best, worst = best_and_worst(arms, scores, self.rho)
        for arm in worst if best else ():
            draw = seeding.rng(context.seed, seeding.TUNER, context.round, arm.index, client=-1)
            source = best[int(draw.integers(len(best)))]
            base = self._members[source.index].base
            old = {name: source.server[name] for name in self.space.server}
            server = self._perturbed("server", old, arm.rounds, draw)
            client = self._perturbed("client", base, arm.rounds, draw)
            arm.become(source, {**source.server, **server}, source.client)
            of_source = list(self._members[source.index].scores)
            self._members[arm.index] = Member(client, scores=of_source, parent=source.index)
            row: dict[str, Any] = {"round": context.round, "arm": arm.index, "parent": source.index}
            for side, before, after in (("server", old, server), ("client", base, client)):
                for name, value in after.items():
                    row |= {f"{side}/{name}": value, f"{side}/{name}/parent": before[name]}
            self._lineage.append(row)

    def best(self, arm: Arm) -> Config:
        """Return the base of an arm's configurations."""
        member = self._members.get(arm.index)
        return {} if member is None else member.base

    @property
    def lineage(self) -> Table:
        """Who came from whom: a row for every arm that was replaced, with its new values and those of its parent."""
        names = self._lineage[0] if self._lineage else ()
        return Table({name: [row[name] for row in self._lineage] for name in names})

    def describe_lineage(self) -> str:
        """Return the lineage as text, a line for every arm that was replaced."""
        lines = []
        for row in self._lineage:
            names = [name for name in row if "/" in name and not name.endswith("/parent")]
            changes = ", ".join(f"{name} {_short(row[f'{name}/parent'])} -> {_short(row[name])}" for name in names)
            lines.append(f"round {row['round']}: arm {row['arm']} became arm {row['parent']} with {changes}")
        return "\n".join(lines) or "no arm was replaced"

    def tables(self) -> dict[str, Table]:
        """Return the lineage."""
        return {"lineage": self.lineage} if self._lineage else {}

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the arm's parent in this round, which is its own number if it was not replaced, and epsilon."""
        if not self.levels:
            return {}
        parent = self._members[arm.index].parent
        return {
            "fedpop/parent": arm.index if parent is None else parent,
            "fedpop/epsilon": annealed(self.epsilon, arm.rounds, max(self._rounds, arm.rounds)),
        }

    def configurations(self, arm: Arm) -> list[dict[str, Any]]:
        """Return a row for every place in the cohort."""
        slots = self._members[arm.index].slots if arm.index in self._members else []
        return [{"config": str(place), **slot, "probability": None} for place, slot in enumerate(slots)]

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's configurations, and the lineage."""
        members = {
            index: {"base": member.base, "slots": member.slots, "scores": member.scores}
            for index, member in self._members.items()
        }
        return deepcopy({"members": members, "lineage": self._lineage})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back."""
        saved = deepcopy(state_dict)
        self._members = {int(index): Member(**member) for index, member in saved["members"].items()}
        self._lineage = saved["lineage"]

    def _member(self, arm: int, seed: int) -> Member:
        """Return an arm's configurations; a new arm has the base that the search alone would draw for it."""
        if arm not in self._members:
            draw = seeding.rng(seed, seeding.SPACE, arm=arm)
            self.space.sample(draw, "server")
            self._members[arm] = Member(self.space.sample(draw, "client"))
        return self._members[arm]

    def _mean_score(self, arm: Arm, results: Sequence[ClientResult], before: Sequence[float]) -> float:
        """Return the plain mean of a round's scores; the arm's own score where it is the server's, or all that is told.

        Where that has stayed, since no client had a score, so does the mean.
        """
        of_clients = [one.score_before if self._target == "global" else one.score_after for one in results]
        scores = [score for score in of_clients if score is not None and math.isfinite(score)]
        if scores and self._target != "server":
            return fmean(scores)
        return before[-1] if before and arm.scores[-2:-1] == arm.scores[-1:] else arm.scores[-1]

    def _ball(self, member: Member) -> SearchSpace:
        return self.space.around(member.base, self.epsilon, "client")

    def _perturbed(self, part: Literal["client", "server"], config: Config, rounds: int, draw: Any) -> dict[str, Any]:
        now = min(rounds, self._rounds)
        epsilon, resample = (annealed(start, now, self._rounds) for start in (self.epsilon, self.resample))
        return perturb_config(self.space.part(part), config, epsilon, resample, draw)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
