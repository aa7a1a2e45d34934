"""FedEx: every client trains with a configuration drawn from a distribution that learns from the clients' losses.

Khodak et al., NeurIPS 2021, and its workshop version, FL-ICML 2020; the mathematics is in :mod:`.exponentiated`. Where
the paper's neighbourhood of discrete values is lopsided, ours is symmetric, as in the authors' program. The step size
`auto` is not in the paper; it is ``eta_0 / sqrt(t)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, number, shown, whole
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.scores import weighted_mean
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.exponentiated import MOST_CONFIGS, ArmState, Baseline, Distribution, Schedule, gradient
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion


class FedEx(Tuner):
    """Tune client hyperparameters by exponentiated gradient, while the model is trained.

    Args:
        space: Its client part is tuned.
        configs: How many configurations an arm chooses among, k; or a pair of bounds to draw it from for each arm.
        epsilon: How far the configurations are from the arm's first, as a part of the space: 0 makes them all the
            same, 1 draws each from the whole space.
        schedule: The step size: ``"aggressive"``, ``"adaptive"``, ``"constant"`` or ``"auto"``.
        baseline: Discount of earlier rounds' losses in the baseline, in [0, 1]; ``"drawn"`` draws it for each arm.
        cutoff: Once the entropy is below it, the distribution stays and the most likely configuration is used.
        objective: ``"personalized"`` learns from the loss after local training, ``"diff"`` from what training changed.
        factorized: One distribution for each hyperparameter, over the values it has among the configurations.
        deploy: At test time every client gets the ``"most_likely"`` configuration, or one ``"sampled"`` for it.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> tuner = FedEx(SearchSpace(client={"lr": Float(1e-3, 1.0, log=True)}), configs=5)
        >>> tuner.client_names
        ('lr',)
    """

    def __init__(
        self,
        space: SearchSpace,
        configs: int | Sequence[int] = 27,
        epsilon: float = 0.1,
        schedule: Schedule = "aggressive",
        baseline: float | Literal["drawn"] = 0.0,
        cutoff: float = 1e-4,
        *,
        objective: Literal["personalized", "diff"] = "personalized",
        factorized: bool = False,
        deploy: Literal["most_likely", "sampled"] = "most_likely",
    ) -> None:
        check_kinds(FedEx, locals())
        if not space.client:
            raise ValueError("`space` must be a SearchSpace with a client part: FedEx tunes client hyperparameters.")
        self._bounds = _bounds(configs)
        self.space: SearchSpace = space
        self.epsilon = number("epsilon", epsilon, 0, 1, why="1 is the whole space already")
        self.schedule = schedule
        self.baseline = baseline if baseline == "drawn" else number("baseline", baseline, 0, 1, why='"drawn" draws it')
        self.cutoff = number("cutoff", cutoff, 0)
        self.objective = objective
        self.factorized = factorized
        self.deploy = deploy
        self.client_names = tuple(space.client)
        self.needs_scores = True
        self.needs_before = objective == "diff"
        self._arms: dict[int, ArmState] = {}

    # ------------------------------------------------------------------ the tuner's part of a round

    def reset(self) -> None:
        """Forget every arm."""
        self._arms = {}

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Draw a configuration for every client from the arm's distribution."""
        state = self._state(arm.index, context.seed)
        draw = seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)
        settled = state.entropy < self.cutoff
        chosen = [state.most_likely if settled else state.sample(draw) for _ in cohort]
        return [Suggestion(state.config(places), state.flat(places)) for places in chosen]

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Step against the gradient of the expected loss (algorithm 2, last four lines)."""
        state = self._state(arm.index, context.seed)
        told = [(result, loss) for result in results if (loss := self._loss(result, context.sign)) is not None]
        if not told:
            return
        losses = [loss for _, loss in told]
        weights = [float(result.val_examples) for result, _ in told]
        baseline = state.baseline.value
        if state.entropy >= self.cutoff:
            choices = [state.places(result.job.index or 0) for result, _ in told]
            for axis, distribution in enumerate(state.distributions):
                slope = gradient(distribution.z, [places[axis] for places in choices], losses, weights, baseline)
                distribution.update(slope, self.schedule)
        state.baseline.add(weighted_mean(losses, weights))

    def best(self, arm: Arm) -> Config:
        """Return the most likely configuration."""
        state = self._arms.get(arm.index)
        return {} if state is None else state.config(state.most_likely)

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return the configuration a client is tested with."""
        state = self._arms.get(arm.index)
        if state is None or self.deploy == "most_likely":
            return self.best(arm)
        return state.config(state.sample(seeding.rng(seed, seeding.EVALUATION, 1, arm.index, client)))

    # ------------------------------------------------------------------ what users see

    @property
    def probabilities(self) -> Tensor:
        """The best arm's probabilities; with ``factorized`` those of all combinations, as :attr:`configs` has them."""
        state = self._shown()
        joint = np.zeros(1)
        for distribution in state.distributions:
            joint = np.add.outer(joint, distribution.z).ravel()
        return torch.from_numpy(np.exp(joint))

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The configurations that the best arm chooses among."""
        state = self._shown()
        return [state.config(places) for places in product(*(range(len(axis)) for axis in state.axes))]

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the entropy, the most likely configuration, and every probability."""
        state = self._arms[arm.index]
        found: dict[str, float] = {
            "fedex/entropy": state.entropy,
            "fedex/mle": state.flat(state.most_likely),
            "fedex/baseline": state.baseline.value,
        }
        if not self.factorized:
            chances = np.exp(state.distributions[0].z)
            return found | {f"fedex/prob/{place}": float(chance) for place, chance in enumerate(chances)}
        for name, distribution in zip(self.client_names, state.distributions, strict=True):
            for place, chance in enumerate(np.exp(distribution.z)):
                found[f"fedex/prob/{name}/{place}"] = float(chance)
        return found

    def candidates(self, arm: Arm) -> dict[str, dict[str, Any]]:
        """Return the configuration, or the hyperparameter's value, behind every logged probability."""
        if arm.index not in self._arms:
            return {}
        state = self._arms[arm.index]
        if not self.factorized:
            return {str(place): config for place, config in enumerate(state.axes[0])}
        return {
            f"{name}/{place}": value
            for name, axis in zip(self.client_names, state.axes, strict=True)
            for place, value in enumerate(axis)
        }

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        return {
            "name": "FedEx",
            "space": self.space.to_dict()["client"],
            "configs": list(self._bounds),
            "epsilon": self.epsilon,
            "schedule": self.schedule,
            "baseline": self.baseline,
            "cutoff": self.cutoff,
            "objective": self.objective,
            "factorized": self.factorized,
        }

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's distributions and baseline; its configurations follow from the seed."""
        return {
            "arms": {
                index: {
                    "distributions": [distribution.state_dict() for distribution in state.distributions],
                    "axes": state.axes,
                    "baseline": [state.baseline.discount, state.baseline.weighed, state.baseline.total],
                }
                for index, state in self._arms.items()
            }
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back."""
        self._arms = {
            int(index): ArmState(
                [[dict(value) for value in axis] for axis in saved["axes"]],
                [Distribution.from_state(one) for one in saved["distributions"]],
                Baseline(*saved["baseline"]),
            )
            for index, saved in state_dict["arms"].items()
        }

    def _shown(self) -> ArmState:
        if self.leader is None or self.leader not in self._arms:
            raise RuntimeError("FedEx has no distribution yet: `trainer.fit` makes one for every arm.")
        return self._arms[self.leader]

    def _state(self, arm: int, seed: int) -> ArmState:
        if arm not in self._arms:
            draw = seeding.rng(seed, seeding.CONFIGS, arm=arm)
            size = int(draw.integers(self._bounds[0], self._bounds[1], endpoint=True))
            discount = float(draw.random()) if self.baseline == "drawn" else float(self.baseline)
            configs = self.space.neighbourhood(draw, size, self.epsilon, "client")
            axes = [configs] if not self.factorized else [_values(configs, name) for name in self.client_names]
            self._arms[arm] = ArmState(axes, [Distribution.uniform(len(axis)) for axis in axes], Baseline(discount))
        return self._arms[arm]

    def _loss(self, result: ClientResult, sign: float) -> float | None:
        if result.score_after is None or not result.val_examples:
            return None
        loss = sign * result.score_after
        if self.objective == "diff":
            if result.score_before is None or not math.isfinite(result.score_before):
                return None
            loss -= sign * result.score_before
        return loss if math.isfinite(loss) else None


def _bounds(configs: int | Sequence[int]) -> tuple[int, int]:
    several = tuple(configs[:3]) if isinstance(configs, Sequence) else (configs, configs)
    pair = [whole("configs", one, high=MOST_CONFIGS) for one in several]
    if len(pair) != 2 or pair[0] > pair[1]:
        raise ValueError(f"`configs` must be how many configurations, or a pair (fewest, most), got {shown(configs)}.")
    return pair[0], pair[1]


def _values(configs: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the different values a hyperparameter has among configurations, in the order of their appearance."""
    return [{name: value} for value in dict.fromkeys(config[name] for config in configs)]
