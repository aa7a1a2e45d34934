"""The base of who takes part in a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo import seeding


@dataclass(frozen=True)
class Draw:
    """The place of a draw: everything that it is a function of.

    Attributes:
        seed: The run's seed.
        round: The round.
        arm: The arm.
        cohort: How many clients are asked at most.
        sizes: The training examples of every client of the federation.
    """

    seed: int
    round: int
    arm: int
    cohort: int
    sizes: NDArray[np.int64]

    @property
    def rng(self) -> np.random.Generator:
        """A generator for this round and arm."""
        return seeding.rng(self.seed, seeding.COHORT, self.round, self.arm)


class Participation(ABC):
    """Base of who takes part in a round."""

    @abstractmethod
    def draw(self, place: Draw) -> NDArray[np.int64]:
        """Return the clients of a cohort, each once; fewer than asked for if fewer can be had."""

    def check(self, clients: int) -> None:  # noqa: B027 - most have nothing to check
        """Refuse a federation that does not fit; called before the first round."""

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the class and its settings."""
        return {"name": type(self).__name__, **{name: value for name, value in vars(self).items() if name[0] != "_"}}

    def __repr__(self) -> str:
        settings = [f"{name}={value!r}" for name, value in self.identity().items() if name != "name"]
        return f"{type(self).__name__}({', '.join(settings)})"
