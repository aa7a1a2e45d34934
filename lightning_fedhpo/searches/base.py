"""The base of searches, which decide which arms there are and which live on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import check_beside_loop
from lightning_fedhpo.types import ClientResult, Config, RoundContext

MOST_ARMS = 10**5


@dataclass(frozen=True)
class Draft:
    """An arm to be started: its server's configuration, and what a search has drawn for its clients.

    Attributes:
        server: The configuration of aggregation.
        client: The configuration of all clients.
        clients: The configuration of each client of the federation, by number; empty if all clients have the same.
        cohort: How many clients its rounds ask for; None for as many as the loop says.
    """

    server: Config
    client: Config
    clients: Sequence[Config] = ()
    cohort: int | None = None


class Search(Callback):
    """Base of all searches: starts arms and takes them out, within one budget of rounds.

    The loop calls :meth:`begin` before every round and :meth:`end` after it. Both depend on the present arms and the
    seed alone, so a search has no state to save. A subclass sets the attributes below in its constructor.

    Attributes:
        clients: The number of clients in the federation; the loop sets it before the first round.
        max_rounds: Rounds of the longest arm.
        rounds: Rounds that the Trainer has to allow.
        spends: Rounds of single arms that the whole search takes; never more than the budget.
        starts: The number of arms in the first round; None if it is not known.
        keeps_start: Whether arms start after the first round, so that the initial weights have to be kept.
        settings: Names of the constructor's arguments that a checkpoint must agree with.
        needs_scores: Whether the search learns from scores, so that a monitor is needed.
        first: The arms that start before :meth:`begin` is called.
        epsilon: The privacy of a release, for a search that learns from nothing else of clients.
        delta: Its delta, if it has one.
        released: The clients of whom :meth:`end` has released something in this round.

    Args:
        space: The hyperparameters that are drawn for every arm: the server part, and the client part that no tuner
            sets.
        budget: Rounds of single arms that may be spent in all.
        per_client: Draw the client part for every client of the federation.
    """

    clients: int = 0
    max_rounds: int
    rounds: int
    spends: int
    starts: int | None = None
    keeps_start: bool = False
    settings: Sequence[str] = ()
    needs_scores: bool = True
    first: Sequence[Draft] = ()
    epsilon: float | None = None
    delta: float | None = None
    released: Sequence[int] = ()

    def __init__(self, space: SearchSpace, budget: int, per_client: bool = False) -> None:
        check_kinds(Search, locals())
        if not space.client and not space.server:
            raise ValueError("`space` must have a hyperparameter to search, got an empty SearchSpace().")
        if per_client and not space.client:
            raise ValueError(
                "`per_client=True` draws the client part of the space for every client, got a space without one: "
                "SearchSpace(client={...}), or leave `per_client` out."
            )
        self.space = space
        self.budget = whole("budget", budget)
        self.per_client = per_client
        self._tuned: frozenset[str] = frozenset()
        self._pinned: frozenset[str] = frozenset()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a Trainer without a ``FederatedLoop``."""
        check_beside_loop(self, trainer, stage)

    def begin(self, arms: Sequence[Arm], context: RoundContext) -> list[Draft]:
        """Return the arms to start before this round; all start before the first unless a subclass says otherwise."""
        return [] if arms else [self.draft(arm, context.seed) for arm in range(self.starts or 0)]

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Look at the exact results of an arm's clients, after their models are aggregated.

        Clients that diverged, failed or were lost are not among them. What is kept of them belongs into ``state_dict``:
        a checkpoint from inside a round does not run arms again that were done.
        """

    def spent(self, releases: int) -> float:
        """Return the epsilon of a client of whom so many releases were made."""
        return 0.0

    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Return the arms to take out after this round, by default none."""
        return []

    @abstractmethod
    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the search is over."""

    def exclude_tuned(self, client: Collection[str], server: Collection[str], clients: int) -> None:
        """Take the names that a tuner sets, which are not drawn, and the number of clients."""
        self._tuned, self._pinned, self.clients = frozenset(client), frozenset(server), clients
        if self.per_client and not self.client_names:
            raise MisconfigurationException(
                f"{type(self).__name__}(per_client=True) draws what the tuner leaves of the client part, and the tuner "
                f"sets all of it: {', '.join(self.space.client)}. Leave `per_client` out, or let the tuner set fewer."
            )

    def settings_within(self, rounds: int) -> dict[str, int]:
        """Return settings with which the search takes at most so many rounds of the Trainer; none if nobody knows."""
        return {}

    @property
    def client_names(self) -> list[str]:
        """The client hyperparameters that are drawn."""
        return [name for name in self.space.client if name not in self._tuned]

    @property
    def server_names(self) -> list[str]:
        """The server hyperparameters that are drawn."""
        return [name for name in self.space.server if name not in self._pinned]

    def draft(self, arm: int, seed: int) -> Draft:
        """Draw an arm; the server part first, so that it does not depend on what a tuner sets."""
        draw = seeding.rng(seed, seeding.SPACE, arm=arm)
        server = self.space.sample(draw, "server")
        drawn = {name: server[name] for name in self.server_names}
        if not self.per_client:
            return Draft(drawn, self._client(draw))
        # From 1, since client=0 names the arm's own draw.
        draws = [seeding.rng(seed, seeding.SPACE, arm=arm, client=1 + client) for client in range(self.clients)]
        return Draft(drawn, {}, [self._client(draw) for draw in draws])

    def _client(self, draw: np.random.Generator) -> Config:
        client = self.space.sample(draw, "client")
        return {name: client[name] for name in self.client_names}

    def trial(self, seed: int) -> Config:
        """Return a client configuration for the dry run."""
        draft = self.draft(0, seed)
        return {**draft.client, **(draft.clients[0] if draft.clients else {})}

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the space and the settings."""
        settings = {name: getattr(self, name) for name in ("budget", "per_client", *self.settings)}
        return {"name": type(self).__name__, "space": self.space.to_dict(), **settings}


class NoSearch(Search):
    """The search of a run without one: one arm, which trains for the Trainer's rounds.

    Args:
        rounds: The number of rounds; None if the Trainer leaves it open.
        ends: Whether the loop ends these rounds instead of the Trainer, since others follow.
    """

    needs_scores = False
    first = (Draft({}, {}),)
    starts = 1

    def __init__(self, rounds: int | None = None, ends: bool = False) -> None:
        self.space, self.per_client = SearchSpace(), False
        self.max_rounds = self.rounds = self.spends = self.budget = rounds or 0
        self._ends = ends

    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the rounds are over, if the loop ends them."""
        return self._ends and len(arms) > 0 and arms[0].rounds >= self.max_rounds

    def identity(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


def arms_of(budget: int, max_rounds: int) -> int:
    """Return how many arms of so many rounds a budget covers: 3 of 30 rounds with 100."""
    if max_rounds > budget:
        raise ValueError(
            f"`max_rounds` must be from 1 to `budget`, got {max_rounds} with budget={budget}: the budget does not "
            "cover a single arm."
        )
    check_arms(budget // max_rounds, budget=budget, max_rounds=max_rounds)
    return budget // max_rounds


def check_arms(arms: int, **settings: int) -> None:
    """Refuse settings that ask for more than :data:`MOST_ARMS` arms."""
    if arms > MOST_ARMS:
        asked = " and ".join(f"{name}={value}" for name, value in settings.items())
        raise ValueError(f"a search has at most {MOST_ARMS} arms, got {arms} with {asked}: each is a model of its own.")
