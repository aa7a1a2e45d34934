"""What decides which arms there are, and which live on."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_fedhpo import seeding
from lightning_fedhpo.arm import Arm
from lightning_fedhpo.space import SearchSpace
from lightning_fedhpo.tuners.base import check_beside_loop
from lightning_fedhpo.types import Config, RoundContext


@dataclass(frozen=True)
class Draft:
    """An arm that is to be: its server's configuration, and its clients' as far as no tuner sets it."""

    server: Config
    client: Config


class Search(Callback):
    """Base of all searches: starts arms and takes them out, within one budget of rounds.

    The loop calls :meth:`begin` before every round and :meth:`end` after it. Which arms are to be follows from those
    there are and from the seed, so a search has no state of its own to save unless it learns.

    Args:
        space: What is drawn for every arm: its server part, and of its client part what no tuner sets.
        budget: Rounds of single arms that may be spent in all.
    """

    def __init__(self, space: SearchSpace, budget: int) -> None:
        if not isinstance(space, SearchSpace):
            raise TypeError(f"`space` must be a SearchSpace, got {space!r}.")
        if not space.client and not space.server:
            raise ValueError("`space` must have a hyperparameter to search, got an empty SearchSpace().")
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise ValueError(f"`budget` must be a whole number of rounds of at least 1, got {budget!r}.")
        self.space = space
        self.budget = budget
        self._tuned: frozenset[str] = frozenset()
        self._pinned: frozenset[str] = frozenset()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a Trainer without the loop that asks a search."""
        check_beside_loop(self, trainer, stage)

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

    def leave(self, client: Collection[str], server: Collection[str]) -> None:
        """Say which hyperparameters a tuner sets: the search draws the others."""
        self._tuned, self._pinned = frozenset(client), frozenset(server)

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
        client = self.space.sample(draw, "client")
        return Draft(
            {name: server[name] for name in self.server_names}, {name: client[name] for name in self.client_names}
        )

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the space and the settings."""
        return {"name": type(self).__name__, "space": self.space.to_dict(), "budget": self.budget}


def discounted(scores: Sequence[float], discount: float) -> float:
    """Return the mean of scores in which the last has weight 1, the one before ``discount``, then its square.

    >>> discounted([4.0, 2.0], 0.0), discounted([4.0, 2.0], 1.0), round(discounted([4.0, 1.0], 0.5), 9)
    (2.0, 3.0, 2.0)
    """
    weighed = total = 0.0
    for age, score in enumerate(reversed(scores)):
        weight = discount**age
        if not weight:
            break
        weighed += weight * score
        total += weight
    return weighed / total


def ranked(arms: Sequence[Arm], scores: Sequence[float]) -> list[Arm]:
    """Return arms from the best to the worst: small scores first, what is not finite last, the earlier of equals first.

    >>> [str(arm) for arm in ranked(["a", "b", "c"], [float("nan"), 2.0, 2.0])]
    ['b', 'c', 'a']
    """
    order = sorted(range(len(arms)), key=lambda place: (not math.isfinite(scores[place]), _finite(scores[place])))
    return [arms[place] for place in order]


def _finite(score: float) -> float:
    return score if math.isfinite(score) else 0.0
