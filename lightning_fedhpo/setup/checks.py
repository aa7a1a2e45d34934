"""Checks that the parts of a run fit together, before the first round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import processes
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import WrongSettings, did_you_mean
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.run.checkpoint import check_whole
from lightning_fedhpo.run.evaluation import check_clients
from lightning_fedhpo.run.options import LoopOptions
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.searches.base import NoSearch, Search
from lightning_fedhpo.space.search_space import SpacePart
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import Config


def check_module(module: LightningModule, monitor: str | None) -> None:
    """Refuse a module that lacks a step a federated run needs."""
    if monitor is not None and not private.is_overridden("validation_step", module):
        raise MisconfigurationException(
            f"`monitor={monitor!r}` is read from `validation_step`, which {type(module).__name__} does not have. Add "
            "it, or train without scores: FederatedLoop(monitor=None)."
        )


def federated_data(trainer: AnyTrainer) -> FederatedData:
    """Return the run's federation."""
    data = getattr(trainer, "datamodule", None)
    if isinstance(data, FederatedData):
        return data
    got = f"a {type(data).__name__}" if data is not None else "data loaders, or none"
    raise MisconfigurationException(
        f"a federated run takes its clients from a FederatedData, got {got}: wrap the data set or the data module, "
        "as in `trainer.fit(model, datamodule=FederatedData(data, partition=Iid(100)))`."
    )


def check_federation(wrong: WrongSettings, options: LoopOptions, data: FederatedData) -> None:
    """Refuse clients that the federation cannot give."""
    wrong.attempt(check_cohort, options.cohort, len(data))
    wrong.attempt(options.clients.check, len(data))
    wrong.attempt(check_tests, options.evaluate_at, options.evaluate_clients, data)


def check_cohort(cohort: int, clients: int) -> None:
    """Refuse a cohort that the federation cannot give."""
    if cohort > clients:
        raise ValueError(
            f"`cohort` is {cohort}, but the federation has {clients} clients: take a smaller cohort, or split the data "
            "among more clients."
        )


def check_tests(at: int | Sequence[int] | None, clients: int | None, data: FederatedData) -> None:
    """Refuse tests during the run that cannot be made."""
    sizes = data.sizes("test")
    if sizes.any():
        check_clients(clients, sizes, "evaluate_clients")
    elif at is not None:
        raise ValueError("`evaluate_at` tests on clients' test examples, of which there are none: see `fractions`.")


def check_target(target: str, has_server_data: bool) -> None:
    """Refuse to score on the server's examples if it has none."""
    if target == "server" and not has_server_data:
        raise MisconfigurationException(
            '`target="server"` scores arms on the server\'s own validation examples, of which this run has none: pass '
            "FederatedLoop(server_data=<data set or DataLoader>), or hold a part of the training examples out by "
            "FederatedData(..., server_fraction=0.1)."
        )


def check_logged(metrics: Mapping[str, float], monitor: str | None, where: str = "") -> None:
    """Refuse a monitor that the module does not log."""
    if monitor is not None and monitor not in metrics:
        raise ValueError(
            f"`monitor={monitor!r}` is not among what `validation_step` logs or returns{where}: "
            f"{', '.join(metrics) or 'nothing'}. Name one of these, or log it.{did_you_mean(monitor, metrics)}"
        )


def check_server(algorithm: Algorithm, fixed: Config, tuner: Tuner, search: Search) -> None:
    """Refuse server hyperparameters that the method does not have, and values that it cannot take."""
    unused = tuner.space.server if tuner.space is not None else ()  # nobody draws these, but a wrong name is a mistake
    algorithm.check_server_names([*fixed, *search.server_names, *tuner.server_names, *unused])
    algorithm.check_values("server", fixed)
    edges = [(name, value) for name in tuner.server_names for value in tuner.edges(name, "server")]
    edges += [(name, value) for name in search.server_names for value in search.space.edges(name, "server")]
    for name, value in edges:
        algorithm.check_values("server", {name: value})


def check_spaces(tuner: Tuner, search: Search) -> None:
    """Refuse a tuner's and a search's spaces that contradict each other.

    The search draws the server part, and of the client part what the tuner does not set.
    """
    if isinstance(search, NoSearch) or tuner.space is None:
        return
    names = f"{type(tuner).__name__} and {type(search).__name__}"
    parts: tuple[SpacePart, SpacePart] = ("client", "server")
    for part in parts:
        theirs = search.space.part(part)
        for name, own in tuner.space.part(part).items():
            if theirs.get(name, own) != own:
                raise ValueError(
                    f"{names} must agree on {part}.{name}, got {own!r} and {theirs[name]!r}: give the space to the "
                    "search alone, and the tuner takes it."
                )
    if undrawn := [name for name in tuner.space.server if name not in search.space.server]:
        raise ValueError(
            f"the search draws the server's hyperparameters, and only the tuner's space has {', '.join(undrawn)}: give "
            f"{names} the same space, or the search alone."
        )


def check_drawn(tuner: Tuner, search: Search) -> None:
    """Refuse a tuner that has values of its own for all that the search draws: every arm would be the same."""
    drawn = [f"{part}.{name}" for part in ("client", "server") for name in search.space.part(part)]
    if tuner.space is None and drawn and not search.client_names and not search.server_names:
        names, of_tuner = type(search).__name__, type(tuner).__name__
        raise ValueError(
            f"{', '.join(drawn)} set twice: {names} draws nothing else, and {of_tuner} sets it in every arm, so all "
            f"arms are the same. Leave {names} out, or take these names out of {of_tuner}."
        )


def check_scores(monitor: str | None, of_clients: str | None, tuner: Tuner, search: Search) -> None:
    """Refuse tuners and searches that learn from scores in a run without them."""
    if tuner.needs_scores and monitor is not None and of_clients is None:
        raise MisconfigurationException(
            f"{type(tuner).__name__} learns from clients' scores, and no client has validation examples: raise the "
            "second of `fractions`."
        )
    learning = next((part for part in (search, tuner) if part.needs_scores), None)
    if monitor is None and learning is not None:
        raise MisconfigurationException(
            f"{type(learning).__name__} learns from clients' scores, which FederatedLoop(monitor=None) does without: "
            "name a monitor."
        )


def check_noise(options: LoopOptions, tuner: Tuner, search: Search) -> None:
    """Refuse noise on scores that nobody looks at, and scores beside a search that is private without them."""
    if search.epsilon is not None and (options.noise is not None or tuner.needs_scores):
        other = "`noise` releases" if options.noise is not None else f"{type(tuner).__name__} learns from"
        raise MisconfigurationException(
            f"{type(search).__name__} is private, and {other} clients' scores besides: leave that out, or take "
            f"{type(search).__name__}(epsilon=None)."
        )
    if options.noise is not None and options.target == "server" and not tuner.needs_scores:
        raise MisconfigurationException(
            '`noise` is on clients\' scores, and neither the arms (`target="server"`) nor the tuner learns from them: '
            "leave it out, or take another target."
        )


def tell_unused_server_space(tuner: Tuner, search: Search) -> None:
    """Say that the server part of a tuner's space is not used, if no search draws from it."""
    if isinstance(search, NoSearch) and tuner.space is not None and tuner.space.server:
        rank_zero_info(
            f"{type(tuner).__name__} tunes clients; without a search, the server's {', '.join(tuner.space.server)} "
            "stay as the algorithm has them."
        )


def check_continued(before: RunParts, state: RunState, now: RunParts) -> None:
    """Refuse to go on with a run on another module or federation than it began with."""
    check_whole(state.phase == "aggregation")
    way_out = "a run goes on with what it began with; take a new Trainer for a new run."
    if before.module is not now.module:
        raise MisconfigurationException(f"this Trainer is in the middle of a run of another module: {way_out}")
    if before.data.fingerprint() != now.data.fingerprint():
        raise ValueError(f"this Trainer is in the middle of a run on another federation: {way_out}")


def check_alike(identities: Sequence[Mapping[str, Any]]) -> None:
    """Refuse processes that have come to different runs."""
    for rank, own in enumerate(identities):
        lines = [f"\n- {n}: {one!r} in the first, {own[n]!r}" for n, one in identities[0].items() if own[n] != one]
        if lines:
            error = ValueError(
                f"all processes must have the same run, process {rank} has another one:{''.join(lines)}\nMake data and "
                "settings from fixed seeds: every process makes its own."
            )
            raise processes.common(error)
