"""Weight sharing: an arm's clients draw configurations from a distribution that learns while their model is trained.

The base of FedEx and of multiplicative weights.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.exponentiated_gradient import Baseline, Distribution, entropy, sampled
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion

MOST_CONFIGS = 10**4
"""Every configuration's probability is logged in every round."""


@dataclass
class ArmState:
    """The candidates of one arm, and the distributions over them."""

    axes: list[list[dict[str, Any]]]  # what each distribution chooses among: configurations, or one name's values
    distributions: list[Distribution]
    baseline: Baseline = field(default_factory=Baseline)

    @classmethod
    def uniform(cls, axes: list[list[dict[str, Any]]], discount: float = 0.0) -> ArmState:
        """Return uniform distributions."""
        return cls(axes, [Distribution.uniform(len(axis)) for axis in axes], Baseline(discount))

    def config(self, places: Sequence[int]) -> dict[str, Any]:
        """Return the configuration with one place on every axis."""
        chosen = [axis[place] for axis, place in zip(self.axes, places, strict=True)]
        return {name: value for config in chosen for name, value in config.items()}

    def flat(self, places: Sequence[int]) -> int:
        """Return the number of a choice in the product of all axes."""
        index = 0  # Python's integers: the product may be beyond numpy's
        for axis, place in zip(self.axes, places, strict=True):
            index = index * len(axis) + place
        return index

    def places(self, index: int) -> list[int]:
        """Return the choice with a number."""
        found = []
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis))
            found.append(place)
        return found[::-1]

    @property
    def most_likely(self) -> list[int]:
        """The most likely place on every axis, the first of equals."""
        return [int(distribution.z.argmax()) for distribution in self.distributions]

    @property
    def entropy(self) -> float:
        """The entropy of the distribution over configurations."""
        return sum(entropy(distribution.z) for distribution in self.distributions)

    def sample(self, draw: np.random.Generator, count: int = 1) -> list[list[int]]:
        """Draw a place on every axis, so many times."""
        numbers = draw.random((count, len(self.axes)))
        places = [sampled(one.z, column) for one, column in zip(self.distributions, numbers.T, strict=True)]
        return np.stack(places, axis=1).tolist()  # type: ignore[no-any-return]  # lists of int

    def state_dict(self) -> dict[str, Any]:
        """Return the state in plain containers."""
        distributions = [vars(distribution) | {"z": distribution.z.tolist()} for distribution in self.distributions]
        return {"axes": self.axes, "distributions": distributions, "baseline": asdict(self.baseline)}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> ArmState:
        """Build an arm's state from a checkpoint."""
        axes = [[dict(config) for config in axis] for axis in saved["axes"]]
        distributions = [Distribution(**one | {"z": np.asarray(one["z"])}) for one in saved["distributions"]]
        return cls(axes, distributions, Baseline(**saved["baseline"]))


class WeightSharing(Tuner):
    """Base of tuners that draw every client's configuration from the arm's distribution.

    A subclass makes an arm's state in :meth:`start` and moves its distributions in :meth:`observe`.

    Attributes:
        prefix: What the logged keys begin with.
        factorized: Whether every hyperparameter has a distribution of its own.
        cutoff: The entropy below which the most likely configuration is used.
    """

    space: SearchSpace
    needs_scores = True
    prefix: str
    factorized: bool = False
    cutoff: float = 0.0

    def __init__(self, space: SearchSpace | None) -> None:
        self.own_space(space)
        self.reset()

    @abstractmethod
    def start(self, arm: int, seed: int) -> ArmState:
        """Return the candidates of a new arm, with uniform distributions."""

    def reset(self) -> None:
        """Forget every arm."""
        self._arms: dict[int, ArmState] = {}

    def state_of(self, arm: Arm, seed: int) -> ArmState:
        """Return the state of an arm, a new one at first."""
        if arm.index not in self._arms:
            self._arms[arm.index] = self.start(arm.index, seed)
        return self._arms[arm.index]

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Draw a configuration for every client from the arm's distribution."""
        state = self.state_of(arm, context.seed)
        draw = seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)
        settled = state.entropy < self.cutoff
        chosen = [state.most_likely] * len(cohort) if settled else state.sample(draw, len(cohort))
        return [Suggestion(state.config(places), state.flat(places)) for places in chosen]

    def losses(self, results: Sequence[ClientResult], sign: float) -> list[tuple[ClientResult, float]]:
        """Return results with their losses, where these are finite: after training, or what training has changed."""
        found = []
        for result in results:
            before = result.score_before if self.needs_before else 0.0
            if result.score_after is None or before is None or not result.val_examples:
                continue
            loss = sign * result.score_after - sign * before
            if math.isfinite(loss):
                found.append((result, loss))
        return found

    def best(self, arm: Arm) -> Config:
        """Return the most likely configuration."""
        state = self._arms.get(arm.index)
        return {} if state is None else state.config(state.most_likely)

    @property
    def probabilities(self) -> Tensor:
        """The best arm's probabilities, in the order of :attr:`configs`. More than 10,000 are an error, there, too."""
        joint = np.zeros(1)
        for distribution in self._best_state().distributions:
            joint = np.add.outer(joint, distribution.z).ravel()
        return torch.from_numpy(np.exp(joint))

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The configurations that the best arm chooses among; with ``factorized`` all combinations of values."""
        state = self._best_state()
        return [state.config(places) for places in product(*(range(len(axis)) for axis in state.axes))]

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the entropy, the most likely configuration, and every probability."""
        state = self._arms[arm.index]
        found = {"entropy": state.entropy, "mle": state.flat(state.most_likely), **self.more_figures(state)}
        for axis, distribution in zip(state.axes, state.distributions, strict=True):
            chances = np.exp(distribution.z).tolist()
            found |= {f"prob/{self._number(axis, place)}": chance for place, chance in enumerate(chances)}
        return {f"{self.prefix}/{name}": value for name, value in found.items()}

    def more_figures(self, state: ArmState) -> dict[str, float]:
        """Return further figures of an arm."""
        return {}

    def configurations(self, arm: Arm) -> list[dict[str, Any]]:
        """Return a row for every configuration, or with ``factorized`` for every hyperparameter's value."""
        found = []
        state = self._arms.get(arm.index, ArmState([], []))
        for axis, distribution in zip(state.axes, state.distributions, strict=True):
            for place, (config, chance) in enumerate(zip(axis, np.exp(distribution.z), strict=True)):
                found.append({"config": self._number(axis, place), **config, "probability": float(chance)})
        return found

    def _number(self, axis: Sequence[Config], place: int) -> str:
        return f"{next(iter(axis[0]))}/{place}" if self.factorized else str(place)

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's candidates, distributions and baseline."""
        return {"arms": {index: state.state_dict() for index, state in self._arms.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back."""
        self._arms = {int(index): ArmState.from_state(saved) for index, saved in state_dict["arms"].items()}

    def _best_state(self) -> ArmState:
        """Return the best arm's state, unless its axes have too many combinations."""
        if self.leader is None or self.leader not in self._arms:
            raise RuntimeError(f"{type(self).__name__} has no distribution yet: `trainer.fit` makes one for every arm.")
        state = self._arms[self.leader]
        if (several := math.prod(map(len, state.axes))) > MOST_CONFIGS:
            raise RuntimeError(
                f"the best arm has {several:,} combinations of its hyperparameters' values, of which at most "
                f"{MOST_CONFIGS:,} are listed: `fed.result.configs` has every value's own probability."
            )
        return state
