"""A private search: clients vote for candidates, and the votes are summed up with noise.

In the manner of Liebenow, Peinemann, Mohammadi: "DP-Hype: Federated Differentially Private Hyperparameter Search"
(arXiv 2510.04902). Every client scores all candidates on its own data and votes for the one with its smallest loss;
noise is added to the sums of votes, and the candidate with the most wins. A client has one vote, whatever the number of
candidates, so the privacy does not depend on it.

The paper was at hand in summaries only. Ours are: a candidate is an arm, all clients train it for ``vote_after``
rounds, and a client's loss is that of its validation examples after its own training in the last of them; with
``vote_after=1`` this is local training from the initial weights. Two federations are neighbours where one client's
data differ: its vote leaves one candidate and goes to another, which moves the sums by sqrt(2) in the Euclidean norm
and by 2 in sum. So Gaussian noise has the deviation ``sqrt(2) sigma(epsilon, delta)`` (Balle and Wang, ICML 2018, see
``participation/privacy.py``), and Laplace noise the scale ``2 / epsilon``. A tie goes to the earlier candidate.

Epsilon is that of the vote. The models that clients send are not protected by it, nor is what a run of this simulation
writes down: exact scores stand in its tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.participation import privacy
from lightning_fedhpo.searches.base import Draft, Search, check_arms
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import ClientResult, RoundContext


def votes_of(losses: Sequence[Mapping[int, float]]) -> dict[int, int]:
    """Return each client's vote: the place of its smallest loss; ``losses`` has those of the clients for a candidate.

    >>> votes_of([{0: 0.5, 1: 0.2}, {0: 0.1, 1: 0.2, 2: 0.9}])
    {0: 1, 1: 0, 2: 1}
    """
    clients = sorted({client for one in losses for client in one})
    return {
        client: min(range(len(losses)), key=lambda place: losses[place].get(client, math.inf)) for client in clients
    }


class PrivateVote(Search):
    """Let all clients vote for one of some candidates, with differential privacy, and train it on.

    Every client trains every candidate: that is what the search costs. Afterwards rounds have the loop's cohort.

    Args:
        space: What candidates are drawn from.
        max_rounds: Rounds of the winner, with those of the vote.
        candidates: How many there are.
        epsilon: The privacy of a client's vote; None adds no noise.
        delta: For Gaussian noise.
        mechanism: The noise.
        vote_after: The rounds that candidates train before the vote.

    Attributes:
        votes: What the server has seen: the noisy sums of votes by candidate; empty before.
        released: The clients who have voted in the present round.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> search = PrivateVote(SearchSpace(client={"lr": Float(0.01, 1.0, log=True)}), max_rounds=50, candidates=16)
        >>> search.spends, round(search.noise, 3), search.spent(1)
        (65, 5.276, 1.0)
    """

    settings = ("candidates", "max_rounds", "epsilon", "delta", "mechanism", "vote_after")

    def __init__(
        self,
        space: SearchSpace,
        max_rounds: int,
        candidates: int = 8,
        epsilon: float | None = 1.0,
        delta: float | None = 1e-5,
        mechanism: Literal["gaussian", "laplace"] = "gaussian",
        vote_after: int = 1,
    ) -> None:
        check_kinds(PrivateVote, locals())
        self.candidates = self.starts = whole("candidates", candidates, 2)
        check_arms(self.candidates, candidates=self.candidates)
        self.max_rounds = self.rounds = whole("max_rounds", max_rounds)
        self.vote_after = whole("vote_after", vote_after, 1, self.max_rounds)
        self.spends = self.candidates * self.vote_after + self.max_rounds - self.vote_after
        super().__init__(space, self.spends)
        self.epsilon, self.mechanism = epsilon, mechanism
        if epsilon is not None:
            number("epsilon", epsilon, above=0, why="None counts votes without noise")
        gaussian = epsilon is not None and mechanism == "gaussian"
        if gaussian and delta is None:
            raise ValueError('`mechanism="gaussian"` needs a `delta`: a probability far below one over the clients.')
        self.delta = number("delta", delta, above=0, below=1) if gaussian and delta is not None else None
        self.votes: list[float] = []
        self._losses: dict[int, dict[int, float]] = {}

    @property
    def noise(self) -> float:
        """The deviation of Gaussian noise on a candidate's votes, or the scale of Laplace noise; 0 without."""
        if self.epsilon is None:
            return 0.0
        sensitivity = 2.0 if self.delta is None else math.sqrt(2)
        return sensitivity * privacy.noise_multiplier(self.epsilon, self.delta)

    def spent(self, releases: int) -> float:
        """Return the epsilon of a client with so many votes."""
        return 0.0 if self.epsilon is None else privacy.composed(releases, self.epsilon, self.delta)

    def settings_within(self, rounds: int) -> dict[str, int]:
        """Return settings with which the winner trains for at most so many rounds."""
        return {"max_rounds": rounds} if rounds >= self.vote_after else {}

    def begin(self, arms: Sequence[Arm], context: RoundContext) -> list[Draft]:
        """Start the candidates, which all clients train."""
        self.released = ()
        if not arms:
            self.votes, self._losses = [], {}
        return [replace(draft, cohort=self.clients) for draft in super().begin(arms, context)]

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Let clients note their losses before the vote."""
        if arm.rounds == self.vote_after:
            scored = [(result.job.client, result.score_after) for result in results]
            self._losses[arm.index] = {client: context.sign * score for client, score in scored if score is not None}

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """After the rounds of the vote, count it and return all candidates but the winner."""
        live = [arm for arm in arms if arm.live]
        if len(live) < 2 or live[0].rounds != self.vote_after:
            return []
        votes = votes_of([self._losses.get(arm.index, {}) for arm in live])
        self._losses = {}
        draw = seeding.rng(context.seed, seeding.VOTES, context.round)
        noise = draw.laplace if self.delta is None else draw.normal
        counts = np.bincount(list(votes.values()), minlength=len(live)).astype(float)
        counts += noise(0.0, self.noise, len(live)) if self.epsilon is not None else 0.0
        self.votes = counts.tolist()
        self.released = sorted(votes) if self.epsilon is not None else ()
        winner = live[int(counts.argmax())]
        for arm in live:
            arm.cohort = None  # from now on the loop's
        return [arm for arm in live if arm is not winner]

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the winner has had its rounds."""
        return bool(arms) and max(arm.rounds for arm in arms) >= self.max_rounds

    def state_dict(self) -> dict[str, Any]:
        """Return the losses that clients have noted, and the votes."""
        losses = [[arm, client, loss] for arm, one in self._losses.items() for client, loss in one.items()]
        return {"losses": losses, "noted": list(self._losses), "votes": list(self.votes)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them over."""
        self._losses = {arm: {} for arm in state_dict["noted"]}
        for arm, client, loss in state_dict["losses"]:
            self._losses[arm][client] = loss
        self.votes = list(state_dict["votes"])
