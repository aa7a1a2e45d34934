"""Optuna's samplers: they propose points of a space, given the points tried so far and their losses.

Every question builds a new study from the points tried, so that there is no state to save.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lightning_fedhpo import machine, processes
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.searches.base import Draft, Search
from lightning_fedhpo.space.categorical import Choice
from lightning_fedhpo.space.dimensions import Dimension, Float
from lightning_fedhpo.types import Config


def check_installed(asking: str) -> None:
    """Raise if Optuna, or SciPy that its Gaussian processes need, is missing; ``asking`` names who needs it."""
    try:
        import optuna  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{asking} asks Optuna, and {error.name} is not installed: pip install 'lightning-fedhpo[bayes]'."
        ) from error


def random_arms(arms: int) -> int:
    """Return how many of so many arms are drawn at random before the sampler has a say.

    Example:
        >>> random_arms(2), random_arms(12), random_arms(100)
        (1, 4, 10)
    """
    return min(10, max(1, arms // 3))


def ask_arms(
    search: Search, tried: Sequence[tuple[Arm, float]], count: int, *, sampler: str, startup: int, seed: int
) -> list[Draft]:
    """Return arms to try next, given those tried and their losses; the other arguments are those of :func:`ask`."""
    points = [(_point(search, arm), loss) for arm, loss in tried]
    with processes.fail_together("the search") as answers:  # unlike machines may round differently: take the first's
        answers.own = ask(dimensions_of(search), points, count, sampler=sampler, startup=startup, seed=seed)
    return [_draft(search, point) for point in answers.all[0]]


def dimensions_of(search: Search) -> dict[str, Dimension[Any]]:
    """Return the dimensions of an arm by ``part/name``, or ``client/number/name`` if clients differ."""
    client = {f"{prefix}{name}": search.space.client[name] for prefix in _parts(search) for name in search.client_names}
    return {f"server/{name}": search.space.server[name] for name in search.server_names} | client


def _parts(search: Search) -> list[str]:
    return [f"client/{client}/" for client in range(search.clients)] if search.per_client else ["client/"]


def _point(search: Search, arm: Arm) -> dict[str, Any]:
    pairs = list(zip(_parts(search), arm.clients if search.per_client else [arm.client], strict=True))
    if lacking := [name for _, config in pairs for name in search.client_names if name not in config]:
        raise ValueError(
            f"arm {arm.index} has no value of {', '.join(lacking)}, which {type(search).__name__} learns from: it "
            "comes from a checkpoint of another search. Resume with that search, or start anew."
        )
    client = {f"{prefix}{name}": config[name] for prefix, config in pairs for name in search.client_names}
    return {f"server/{name}": arm.server[name] for name in search.server_names} | client


def _draft(search: Search, point: Config) -> Draft:
    server = {name: point[f"server/{name}"] for name in search.server_names}
    configs = [{name: point[f"{prefix}{name}"] for name in search.client_names} for prefix in _parts(search)]
    return Draft(server, {}, configs) if search.per_client else Draft(server, configs[0])


def ask(
    dimensions: Mapping[str, Dimension[Any]],
    tried: Sequence[tuple[Config, float]],
    count: int,
    *,
    sampler: str,
    startup: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return points to try next, proposed together. Optuna sees ordered options as integers, others as categories.

    A loss that is not finite is reported as failed. Points are drawn at random until ``startup`` losses are finite.

    Example:
        >>> known = [({"lr": rate}, abs(rate - 0.3)) for rate in (0.0, 0.2, 0.6, 1.0)]
        >>> found = ask({"lr": Float(0.0, 1.0)}, known, 1, sampler="gp", startup=4, seed=0)
        >>> 0.2 < found[0]["lr"] < 0.4
        True
    """
    import optuna

    kinds = {"gp": optuna.samplers.GPSampler, "tpe": optuna.samplers.TPESampler}
    distributions = {name: _distribution(dimension) for name, dimension in dimensions.items()}
    with _quiet(), machine.threads(1):  # with more, torch and numpy compete for the cores
        study = optuna.create_study(sampler=kinds[sampler](seed=seed % 2**32, n_startup_trials=startup))
        for point, loss in tried:
            failed = not math.isfinite(loss)
            study.add_trial(
                optuna.trial.create_trial(
                    state=optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE,
                    value=None if failed else loss,
                    params={name: _to_optuna(dimension, point[name]) for name, dimension in dimensions.items()},
                    distributions=distributions,
                )
            )
        trials = [study.ask(distributions) for _ in range(count)]
    return [{name: _from_optuna(one, trial.params[name]) for name, one in dimensions.items()} for trial in trials]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's report of every study and trial."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _distribution(dimension: Dimension[Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        places = range(len(dimension.options))
        return IntDistribution(0, places[-1]) if dimension.ordered else CategoricalDistribution(places)
    return (FloatDistribution if isinstance(dimension, Float) else IntDistribution)(**vars(dimension))


def _to_optuna(dimension: Dimension[Any], value: Any) -> Any:
    return dimension.options.index(value) if isinstance(dimension, Choice) else value


def _from_optuna(dimension: Dimension[Any], value: Any) -> Any:
    return dimension.options[value] if isinstance(dimension, Choice) else dimension.clip(value)
