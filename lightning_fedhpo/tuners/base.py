"""The base of tuners, which decide with which configuration each client trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.server_validation import ServerValidation
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.space.search_space import SearchSpace, ends_of
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion


def check_beside_loop(callback: Callback, trainer: Any, stage: str) -> None:
    """Refuse a Trainer without a ``FederatedLoop``: it would train as if the callback were not there."""
    if stage == "fit" and not any(getattr(other, "is_federated_loop", False) for other in trainer.callbacks):
        name = type(callback).__name__
        raise MisconfigurationException(
            f"{name} has no FederatedLoop beside it, so this Trainer would train without clients and tune nothing: "
            f"Trainer(callbacks=[FederatedLoop(...), {name}(...)])."
        )


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run, as far as it is known before the first round.

    Attributes:
        arms: How many arms the search starts at first; None where it does not say.
        rounds: Rounds of the longest arm; None where the Trainer leaves it open.
        cohort: Clients of a round.
        clients: Clients of the federation.
        monitor: The name of the score.
        sign: 1 where smaller scores are better, -1 where larger ones are.
        keeps_client_state: Whether clients keep parameters or a state of their own.
        server: Evaluates on the server's own validation examples; None where it has none.
        pooled_validation: Returns what evaluates on all clients' validation examples, None where they have none.
        target: What an arm's score is: ``"personalized"``, ``"global"`` or ``"server"``.
        algorithm: The federated method by its ``name``, with its settings other than hyperparameters.
        schedules: Whether learning-rate schedules are anew in every ``"job"``, or step by ``"rounds"``.
    """

    arms: int | None
    rounds: int | None
    cohort: int
    clients: int
    monitor: str | None
    sign: float
    keeps_client_state: bool
    server: ServerValidation | None
    pooled_validation: Callable[[], ServerValidation | None]
    target: str = "personalized"
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    schedules: str = "job"


def check_suggestions(tuner: Tuner, suggestions: Sequence[Suggestion], clients: int) -> None:
    """Refuse suggestions that do not fit the cohort, or that set unbound hyperparameters."""
    name = type(tuner).__name__
    if len(suggestions) != clients:
        raise ValueError(f"{name}.suggest must return one suggestion a client: {clients}, got {len(suggestions)}.")
    unbound = {one for suggestion in suggestions for one in suggestion.config} - set(tuner.client_names)
    if unbound:
        raise ValueError(
            f"{name} suggests {', '.join(sorted(unbound))}, which would not take effect: its `client_names` are "
            f"{', '.join(tuner.client_names) or 'empty'}. Name there whatever it sets."
        )


class Tuner(Callback):
    """Base of all tuners: suggests, observes, evolves.

    The loop calls :meth:`suggest` for every live arm at the start of a round, :meth:`receive` for every result,
    :meth:`observe` for every live arm after its aggregation, and :meth:`evolve` once for all arms, after the search
    has taken arms out. A tuner keeps its state per arm, saves all of it in ``state_dict``, and draws from
    ``seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)``; an arm's candidates from
    ``seeding.rng(context.seed, seeding.CONFIGS, arm=arm.index)``.

    Attributes:
        space: The space that configurations are drawn from; None for a tuner that sets values of its own.
        borrows_space: Whether the space is the search's, because the constructor has got none.
        client_names: The client hyperparameters that the tuner sets; checked before the first round.
        server_names: The server hyperparameters that the tuner changes during the run; checked likewise.
        settings: Names of the constructor's arguments that a checkpoint must agree with.
        needs_scores: Whether the tuner learns from clients' scores, so that a monitor is needed.
        needs_before: Whether clients have to be scored before they train, too.
        needs_cosines: Whether the tuner needs ``ClientResult.least_cosine``; jobs then run one after another.
        needs_everyone: Whether all clients of the federation have to take part in every round.
        lists_values: Whether the space has to list every hyperparameter's values, by ``Choice``.
        repeats: How many jobs each client of a cohort has in a round. They follow one another in :meth:`suggest`.
        models_received: How many models a client receives and scores per job beside its own, for the ledger.
        leader: The number of the best arm; the loop sets it.

    Example:
        >>> class Alternate(Tuner):  # even rounds one epoch, odd rounds two
        ...     client_names = ("epochs",)
        ...     def suggest(self, arm, cohort, context):
        ...         return [Suggestion({"epochs": 1 + context.round % 2})] * len(cohort)
    """

    space: SearchSpace | None = None
    borrows_space: bool = False
    client_names: Sequence[str] = ()
    server_names: Sequence[str] = ()
    settings: Sequence[str] = ()
    needs_scores: bool = False
    needs_before: bool = False
    needs_cosines: bool = False
    needs_everyone: bool = False
    lists_values: bool = False
    repeats: int = 1
    models_received: int = 0
    leader: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a Trainer without a ``FederatedLoop``."""
        check_beside_loop(self, trainer, stage)

    def own_space(self, space: SearchSpace | None) -> None:
        """Take the constructor's space; without one the run's search gives its own."""
        self.borrows_space = space is None
        if space is not None:
            self.use_space(space)

    def use_space(self, space: SearchSpace) -> None:
        """Tune the client part of a space."""
        if not space.client:
            raise ValueError(
                f"{type(self).__name__} tunes client hyperparameters, of which its `space` has none: give it a "
                "SearchSpace(client={...}), or no space at all beside a search: then it takes the search's."
            )
        self.space = space
        self.client_names = tuple(space.client)

    def reset(self) -> None:
        """Forget earlier runs. Called when a new run begins, and not when one is resumed or continued."""

    def plan(self, plan: RunPlan) -> None:
        """Take the run's measures before its first round, and refuse a run that does not fit."""

    def rehearse(self, arm: Arm) -> None:
        """Try what a round needs on an untrained arm, and raise what would go wrong."""

    def server(self, arm: int, seed: int) -> Config:
        """Return the server values that are set for a new arm; a search draws the others."""
        return {}

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Return one suggestion for each client of the cohort, by default what it is tested with.

        Called again for a round that is resumed from inside, so it must not count up what ``state_dict`` holds.
        """
        return [Suggestion(self.deployed(arm, client, context.seed)) for client in cohort]

    def receive(self, arm: Arm, result: ClientResult) -> Mapping[str, Any] | None:
        """Look at a client's finite result while its tensors live, and return what :meth:`observe` needs of them.

        It comes back as ``result.received``, on every process of the run.
        """
        return None

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Learn from the results of an arm's clients, after their models are aggregated.

        Clients that diverged, failed or were lost are not among them.
        """

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        """Act between the live arms, for instance by ``arm.become``, which makes an arm a copy of another one."""

    def best(self, arm: Arm) -> Config:
        """Return the client configuration to deploy."""
        return {}

    def clients(self, arm: Arm) -> Sequence[Config]:
        """Return each client's configuration to deploy, by number; empty where :meth:`best` is for all."""
        return ()

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return the configuration that a client is tested with."""
        return self.best(arm)

    def trial(self, seed: int) -> Config:
        """Return a configuration for the dry run."""
        return {} if self.space is None else self.space.sample(seeding.rng(seed, seeding.SPACE, round=1), "client")

    def contrast(self, name: str) -> tuple[Any, Any] | None:
        """Return two values of a hyperparameter that must make a difference; None where there is only one."""
        return ends_of(self.edges(name))

    def edges(self, name: str, part: Literal["client", "server"] = "client") -> Sequence[Any]:
        """Return the extreme values of a hyperparameter, which are checked before the first round."""
        return self.space.edges(name, part) if self.space is not None and name in self.space.part(part) else ()

    def tables(self) -> dict[str, Table]:
        """Return the tuner's own tables by name, to be logged and written into the run's folder."""
        return {}

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the logged figures of an arm's state, by key."""
        return {}

    def configurations(self, arm: Arm) -> list[dict[str, Any]]:
        """Return a row for each of an arm's candidates: its number as ``config``, its values, its ``probability``."""
        return []

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the space and the settings."""
        space = {} if self.space is None else {"space": self.space.to_dict()}
        settings = {name: getattr(self, name) for name in self.settings}
        return {"name": type(self).__name__, "client": list(self.client_names), **space, **settings}


class Untuned(Tuner):
    """The tuner of a run without one: every client trains with the module's own hyperparameters."""
