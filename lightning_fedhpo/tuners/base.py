"""What decides, inside an arm, with which configuration each client trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback

from lightning_fedhpo import seeding
from lightning_fedhpo.arm import Arm
from lightning_fedhpo.space import SearchSpace
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion


class Tuner(Callback):
    """Base of all tuners: suggests, observes, evolves.

    The loop calls :meth:`suggest` for every live arm at the start of a round, :meth:`observe` for every live arm after
    its aggregation, and :meth:`evolve` once for all of them. A tuner keeps its state per arm, saves all of it in
    ``state_dict``, and draws from ``seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)`` alone.

    Example:
        >>> class Alternate(Tuner):  # even rounds one epoch, odd rounds two
        ...     client_names = ("epochs",)
        ...     def suggest(self, arm, cohort, context):
        ...         return [Suggestion({"epochs": 1 + context.round % 2})] * len(cohort)
    """

    space: SearchSpace | None = None
    """What it draws from; a tuner without one sets values of its own."""

    client_names: Sequence[str] = ()
    """The client hyperparameters that this tuner sets, bound and checked before the first round."""

    needs_before: bool = False
    """Whether clients have to be scored before they train, too."""

    leader: int | None = None
    """The number of the best arm, kept by the loop."""

    def server(self, arm: int, seed: int) -> Config:
        """Return what is set for the server of a new arm; a search draws the rest."""
        return {}

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Return one suggestion for each client of the cohort."""
        return [Suggestion({}) for _ in cohort]

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Learn from what an arm's clients sent back; their tensors are gone by now."""

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        """Act between arms."""

    def best(self, arm: Arm) -> Config:
        """Return the client configuration to deploy."""
        return {}

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return the client configuration that one client is tested with: :meth:`best`, unless it is drawn."""
        return self.best(arm)

    def trial(self, seed: int) -> Config:
        """Return a configuration as this tuner may suggest it, to try the module with before the first round."""
        return {} if self.space is None else self.space.sample(seeding.rng(seed, seeding.SPACE, round=1), "client")

    def contrast(self, name: str) -> tuple[Any, Any] | None:
        """Return two values of a hyperparameter that ought to make a difference, or None where there is one only."""
        return None if self.space is None else self.space.ends(name)

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return what is logged of an arm's state, by key."""
        return {}

    def candidates(self, arm: Arm) -> Mapping[str, Any]:
        """Return what is behind the numbered figures of an arm, by number."""
        return {}

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the space and the settings."""
        return {"name": type(self).__name__, "client": list(self.client_names)}


class Untuned(Tuner):
    """What stands in where no tuner is given: every client trains with the module's own hyperparameters."""
