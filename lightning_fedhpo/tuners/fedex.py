"""FedEx: every client trains with a configuration drawn from a distribution that learns from the clients' losses.

Khodak et al., NeurIPS 2021, and its workshop version, FL-ICML 2020; the mathematics is in
:mod:`.exponentiated_gradient`. Deviations: the neighbourhood of discrete values is symmetric, as in the authors'
program; the paper's is lopsided. The step size ``auto``, ``eta_0 / sqrt(t)``, is not in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, is_whole, number, shown, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.scores import weighted_mean
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.tuners.exponentiated_gradient import Schedule, gradient
from lightning_fedhpo.tuners.weight_sharing import MOST_CONFIGS, ArmState, WeightSharing
from lightning_fedhpo.types import ClientResult, Config, RoundContext


class FedEx(WeightSharing):
    """Tune client hyperparameters by exponentiated gradient, while the model is trained.

    Args:
        space: Its client part is tuned; by default that of the search's space.
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

    prefix = "fedex"
    settings = ("epsilon", "schedule", "baseline", "cutoff", "objective", "factorized")

    def __init__(
        self,
        space: SearchSpace | None = None,
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
        super().__init__(space)
        self._bounds = _bounds(configs)
        self.epsilon = number("epsilon", epsilon, 0, 1, why="1 is the whole space already")
        self.schedule = schedule
        self.baseline = baseline if baseline == "drawn" else number("baseline", baseline, 0, 1, why='"drawn" draws it')
        self.cutoff = number("cutoff", cutoff, 0)
        fewest = self._bounds[0]
        if not factorized and fewest > 1 and cutoff >= math.log(fewest):
            raise ValueError(
                f"`cutoff` must be below {math.log(fewest):.2f}, the entropy of {fewest} configurations at the start, "
                f"got {cutoff}: none would be learned."
            )
        self.objective = objective
        self.factorized = factorized
        self.deploy = deploy
        self.needs_before = objective == "diff"

    def start(self, arm: int, seed: int) -> ArmState:
        """Draw an arm's configurations, near the first of them."""
        draw = seeding.rng(seed, seeding.CONFIGS, arm=arm)
        size = int(draw.integers(*self._bounds, endpoint=True))
        discount = float(draw.random()) if self.baseline == "drawn" else float(self.baseline)
        configs = self.space.neighbourhood(draw, size, self.epsilon, "client")
        axes = [_values(configs, name) for name in self.client_names] if self.factorized else [configs]
        return ArmState.uniform(axes, discount)

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Step against the gradient of the expected loss (algorithm 2, last four lines)."""
        state = self.state_of(arm, context.seed)
        scored = self.losses(results, context.sign)
        if not scored:
            return
        losses = [loss for _, loss in scored]
        weights = [float(result.val_examples) for result, _ in scored]
        if state.entropy >= self.cutoff:
            choices = [state.places(result.job.index or 0) for result, _ in scored]
            for axis, distribution in enumerate(state.distributions):
                chosen = [places[axis] for places in choices]
                slope = gradient(distribution.z, chosen, losses, weights, state.baseline.value)
                distribution.update(slope, self.schedule)
        state.baseline.add(weighted_mean(losses, weights))

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return the configuration a client is tested with."""
        state = self._arms.get(arm.index)
        if state is None or self.deploy == "most_likely":
            return self.best(arm)
        return state.config(state.sample(seeding.rng(seed, seeding.EVALUATION, 1, arm.index, client))[0])

    def more_figures(self, state: ArmState) -> dict[str, float]:
        """Return the baseline."""
        return {"baseline": state.baseline.value}

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        return {**super().identity(), "configs": list(self._bounds)}


def _bounds(configs: int | Sequence[int]) -> tuple[int, int]:
    several: Any = (configs, configs) if is_whole(configs) else configs
    pair = [whole("configs", one, high=MOST_CONFIGS) for one in several]
    if len(pair) != 2 or pair[0] > pair[1]:
        raise ValueError(f"`configs` must be how many configurations, or a pair (fewest, most), got {shown(configs)}.")
    return pair[0], pair[1]


def _values(configs: Sequence[Config], name: str) -> list[dict[str, Any]]:
    """Return the different values of a hyperparameter among configurations, in order of appearance."""
    return [{name: value} for value in dict.fromkeys(config[name] for config in configs)]
