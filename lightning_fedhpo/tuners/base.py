"""What decides, inside an arm, with which configuration each client trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import seeding
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.table import Table
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.types import ClientResult, Config, RoundContext, RunPlan, Suggestion


def check_beside_loop(callback: Callback, trainer: Any, stage: str) -> None:
    """Refuse to stand in a Trainer that would train as if the callback were not there."""
    if stage == "fit" and not any(getattr(other, "is_federated_loop", False) for other in trainer.callbacks):
        name = type(callback).__name__
        raise MisconfigurationException(
            f"{name} has no FederatedLoop beside it, so this Trainer would train without clients and tune nothing: "
            f"Trainer(callbacks=[FederatedLoop(...), {name}(...)])."
        )


class Tuner(Callback):
    """Base of all tuners: suggests, observes, evolves.

    The loop calls :meth:`suggest` for every live arm at the start of a round, :meth:`receive` for every result,
    :meth:`observe` for every live arm after its aggregation, and :meth:`evolve` once for all of them, after the search
    has taken arms out. A tuner keeps its state per arm, saves all of it in
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

    server_names: Sequence[str] = ()
    """The server hyperparameters that this tuner changes as it goes, checked before the first round."""

    needs_scores: bool = False
    """Whether it learns from scores, so that there has to be a monitor."""

    needs_before: bool = False
    """Whether clients have to be scored before they train, too."""

    leader: int | None = None
    """The number of the best arm, kept by the loop."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a Trainer without the loop that asks a tuner."""
        check_beside_loop(self, trainer, stage)

    def reset(self) -> None:
        """Forget earlier runs: called where a new one begins, and not where one goes on."""

    repeats: int = 1
    """How many jobs each client of a cohort has in a round, one after another in what :meth:`suggest` is asked for."""

    needs_everyone: bool = False
    """Whether all clients of the federation have to take part in every round."""

    lists_values: bool = False
    """Whether its space has to list every hyperparameter's values, by ``Choice``."""

    models_received: int = 0
    """How many models a client receives, and scores, for each job beside the one it trains: the ledger counts that."""

    def plan(self, plan: RunPlan) -> None:
        """Learn what the run will be, before its first round, and refuse what does not fit."""

    def rehearse(self, arm: Arm) -> None:
        """Try what a round will take on an arm that nobody has trained, and raise what would go wrong."""

    def server(self, arm: int, seed: int) -> Config:
        """Return what is set for the server of a new arm; a search draws the rest."""
        return {}

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Return one suggestion for each client of the cohort."""
        return [Suggestion({}) for _ in cohort]

    def receive(self, arm: Arm, result: ClientResult) -> Mapping[str, Any] | None:
        """Look at a client's result while its tensors live, and return what :meth:`observe` is to have of them.

        It comes back as ``result.received``, on every process of the run. Called for every result that is finite.
        """
        return None

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Learn from what an arm's clients sent back; their models are aggregated by now."""

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        """Act between the arms that the search has left alive: ``arm.become`` makes one a copy of another."""

    def best(self, arm: Arm) -> Config:
        """Return the client configuration to deploy."""
        return {}

    def clients(self, arm: Arm) -> Sequence[Config]:
        """Return each client's own configuration to deploy, by its number; nothing where :meth:`best` is for all."""
        return ()

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return the client configuration that one client is tested with: :meth:`best`, unless it is drawn."""
        return self.best(arm)

    def trial(self, seed: int) -> Config:
        """Return a configuration as this tuner may suggest it, to try the module with before the first round."""
        return {} if self.space is None else self.space.sample(seeding.rng(seed, seeding.SPACE, round=1), "client")

    def contrast(self, name: str) -> tuple[Any, Any] | None:
        """Return two values of a hyperparameter that ought to make a difference, or None where there is one only."""
        return None if self.space is None else self.space.ends(name)

    def edges(self, name: str, part: Literal["client", "server"] = "client") -> Sequence[Any]:
        """Return the values by which to find out whether all values of a hyperparameter can be set."""
        return self.space.edges(name, part) if self.space is not None and name in self.space.part(part) else ()

    def tables(self) -> dict[str, Table]:
        """Return tables of the tuner's own, by name: they are logged, and written into the run's folder."""
        return {}

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return what is logged of an arm's state, by key."""
        return {}

    def candidates(self, arm: Arm) -> Mapping[str, Any]:
        """Return what is behind the numbered figures of an arm, by number."""
        return {}

    def configurations(self, arm: Arm) -> list[dict[str, Any]]:
        """Return what is behind the numbered figures of an arm as rows of a table, with its probability by now."""
        candidates = self.candidates(arm)
        figures = self.figures(arm) if candidates else {}
        return [
            {
                "config": number,
                **config,
                "probability": next((v for name, v in figures.items() if name.endswith(f"/prob/{number}")), None),
            }
            for number, config in candidates.items()
        ]

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the space and the settings."""
        return {"name": type(self).__name__, "client": list(self.client_names)}


class Untuned(Tuner):
    """What stands in where no tuner is given: every client trains with the module's own hyperparameters."""
