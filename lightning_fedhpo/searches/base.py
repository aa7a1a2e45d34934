"""What decides which arms there are, and which live on."""

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
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import check_beside_loop
from lightning_fedhpo.types import Config, RoundContext

MOST_ARMS = 10**5


@dataclass(frozen=True)
class Draft:
    """An arm that is to be: its server's configuration, and its clients' as far as no tuner sets it.

    Attributes:
        server: What the server aggregates with.
        client: What all clients train with.
        clients: What each client of the federation trains with beside, by its number; empty where all are alike.
    """

    server: Config
    client: Config
    clients: Sequence[Config] = ()


class Search(Callback):
    """Base of all searches: starts arms and takes them out, within one budget of rounds.

    The loop calls :meth:`begin` before every round and :meth:`end` after it. Which arms are to be follows from those
    there are and from the seed, so a search has no state of its own to save unless it learns.

    Args:
        space: What is drawn for every arm: its server part, and of its client part what no tuner sets.
        budget: Rounds of single arms that may be spent in all.
        per_client: Draw the client part anew for every client of the federation.
    """

    clients: int = 0
    """How many clients the federation has; the loop says it before the first round."""

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
        """Refuse a Trainer without the loop that asks a search."""
        check_beside_loop(self, trainer, stage)

    max_rounds: int
    """Rounds of the longest arm."""

    @property
    def starts(self) -> int | None:
        """How many arms it starts before the first round; None where that is not said."""
        return None

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How many rounds the Trainer has to allow: those of the longest way through the search."""

    @property
    @abstractmethod
    def spends(self) -> int:
        """How many rounds of single arms the whole search takes; never more than the budget."""

    @abstractmethod
    def begin(self, arms: Sequence[Arm], context: RoundContext) -> list[Draft]:
        """Return the arms to start before this round."""

    @abstractmethod
    def end(self, arms: Sequence[Arm], context: RoundContext) -> list[Arm]:
        """Return the arms to take out after this round."""

    @abstractmethod
    def done(self, arms: Sequence[Arm]) -> bool:
        """Whether the search is over."""

    @property
    def keeps_start(self) -> bool:
        """Whether arms are started after the first round, so that the initial weights have to be kept."""
        return False

    def reset(self) -> None:
        """Forget earlier runs: called where a new one begins, and not where one goes on."""

    def leave(self, client: Collection[str], server: Collection[str], clients: int) -> None:
        """Say which hyperparameters a tuner sets, so that the search draws the others, and for how many clients."""
        self._tuned, self._pinned, self.clients = frozenset(client), frozenset(server), clients
        if self.per_client and not self.client_names:
            raise MisconfigurationException(
                f"{type(self).__name__}(per_client=True) draws what the tuner leaves of the client part, and the tuner "
                f"sets all of it: {', '.join(self.space.client)}. Leave `per_client` out, or let the tuner set fewer."
            )

    @property
    def client_names(self) -> list[str]:
        """The client hyperparameters that are drawn."""
        return [name for name in self.space.client if name not in self._tuned]

    @property
    def server_names(self) -> list[str]:
        """The server hyperparameters that are drawn."""
        return [name for name in self.space.server if name not in self._pinned]

    def draft(self, arm: int, seed: int) -> Draft:
        """Draw an arm; the server's part first, so that it is the same whoever sets the clients'."""
        draw = seeding.rng(seed, seeding.SPACE, arm=arm)
        server = self.space.sample(draw, "server")
        chosen = {name: server[name] for name in self.server_names}
        if not self.per_client:
            return Draft(chosen, self._client(draw))
        # From 1, since the place of client 0 is that of the arm's own draw.
        draws = [seeding.rng(seed, seeding.SPACE, arm=arm, client=1 + client) for client in range(self.clients)]
        return Draft(chosen, {}, [self._client(draw) for draw in draws])

    def _client(self, draw: np.random.Generator) -> Config:
        client = self.space.sample(draw, "client")
        return {name: client[name] for name in self.client_names}

    def trial(self, seed: int) -> Config:
        """Return a client configuration as this search may draw it, to try the module with before the first round."""
        draft = self.draft(0, seed)
        return {**draft.client, **(draft.clients[0] if draft.clients else {})}

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the space and the settings."""
        return {
            "name": type(self).__name__,
            "space": self.space.to_dict(),
            "budget": self.budget,
            "per_client": self.per_client,
        }


def arms_of(budget: int, max_rounds: int) -> int:
    """Return how many arms of so many rounds a budget covers.

    >>> arms_of(100, 30)
    3
    """
    if max_rounds > budget:
        raise ValueError(
            f"`max_rounds` must be from 1 to `budget`, got {max_rounds} with budget={budget}: the budget does not "
            "cover a single arm."
        )
    check_arms(budget // max_rounds, budget=budget, max_rounds=max_rounds)
    return budget // max_rounds


def check_arms(arms: int, **settings: int) -> None:
    """Refuse settings that ask for more arms than can be meant: each is a model of its own."""
    if arms > MOST_ARMS:
        asked = " and ".join(f"{name}={value}" for name, value in settings.items())
        raise ValueError(f"a search has at most {MOST_ARMS} arms, got {arms} with {asked}: each is a model of its own.")
