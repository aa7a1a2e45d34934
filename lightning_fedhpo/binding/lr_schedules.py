"""Sets a learning rate that a schedule owns, as if the module had been built with it.

Most schedules multiply a base rate. ``OneCycleLR`` and ``CyclicLR`` have rates of their own, of which ``max_lr`` can be
set. Rates of several groups keep their author's ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.optim.lr_scheduler import CyclicLR, OneCycleLR

Access = tuple[Callable[[Any], None], Callable[[], Any]]
"""Sets a value, and reads it back."""


Groups = Sequence[tuple[dict[str, Any], float]]
"""Parameter groups, each with its share of the value: the first one's is 1."""


def decayed(lr: float, decay: float, rounds: int) -> float:
    """Return ``lr * (1 - decay)**t``, the papers' learning rate in the arm's round t.

    >>> decayed(2.0, 0.5, rounds=2)
    0.5
    """
    return lr * (1.0 - decay) ** rounds


def base_rate(groups: Groups, schedulers: Iterable[Any]) -> Access:
    """Return access to the rate that schedules start from."""
    nested = list(flattened(schedulers))
    if cycles := _cycles(nested):
        raise ValueError(
            f"hyperparameter 'lr' would not take effect: {type(cycles[0]).__name__} replaces the learning rate by its "
            "own. Bind 'max_lr' instead, or use another scheduler."
        )
    # A schedule's factor at step 0: below one for a warm-up.
    factors = [group["lr"] / group["initial_lr"] if group.get("initial_lr") else 1.0 for group, _ in groups]
    shares = {id(group): share for group, share in groups}
    based = [
        (scheduler, at, shares[id(group)])
        for scheduler in nested
        if hasattr(scheduler, "base_lrs")
        for at, group in enumerate(scheduler.optimizer.param_groups)
        if id(group) in shares
    ]

    def write(value: Any) -> None:
        for (group, share), factor in zip(groups, factors, strict=True):
            group["lr"] = value * share * factor
            if "initial_lr" in group:
                group["initial_lr"] = value * share
        for scheduler, at, share in based:
            scheduler.base_lrs = [*scheduler.base_lrs[:at], value * share, *scheduler.base_lrs[at + 1 :]]
            if hasattr(scheduler, "_last_lr"):
                scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]

    reference = next(group for group, share in groups if share == 1.0)
    places = [(scheduler, at) for scheduler, at, share in based if scheduler.optimizer.param_groups[at] is reference]

    def read() -> Any:
        return places[0][0].base_lrs[places[0][1]] if places else reference["lr"]

    return write, read


def highest_rate(schedulers: Iterable[Any]) -> Access | None:
    """Return access to ``max_lr`` of the schedules that have one, None where there is none."""
    cycles = _cycles(flattened(schedulers))
    if not cycles:
        return None
    own = [rate for cycle in cycles for rate in _highest(cycle)]
    shares = [rate / own[0] if own[0] else 1.0 for rate in own]

    def write(value: Any) -> None:
        left = iter(shares)
        for cycle in cycles:
            if isinstance(cycle, CyclicLR):
                cycle.max_lrs = [value * next(left) for _ in cycle.max_lrs]
                continue
            for group in cycle.optimizer.param_groups:  # its other rates are fractions of the highest
                highest = value * next(left)
                change = highest / group["max_lr"]
                group.update({key: group[key] * change for key in ("lr", "initial_lr", "min_lr")}, max_lr=highest)

    return write, lambda: _highest(cycles[0])[0]


def _cycles(schedulers: Iterable[Any]) -> list[OneCycleLR | CyclicLR]:
    return [scheduler for scheduler in schedulers if isinstance(scheduler, OneCycleLR | CyclicLR)]


def _highest(cycle: OneCycleLR | CyclicLR) -> list[Any]:
    if isinstance(cycle, CyclicLR):
        return list(cycle.max_lrs)
    return [group["max_lr"] for group in cycle.optimizer.param_groups]


def check_not_cycled(key: str, name: str, schedulers: Iterable[Any]) -> None:
    """Refuse a hyperparameter that a schedule writes over at every step, as a cycle does with the momentum."""
    for cycle in _cycles(flattened(schedulers)):
        written = "betas" if getattr(cycle, "use_beta1", False) else "momentum"
        if getattr(cycle, "cycle_momentum", False) and key == written and name != "beta2":
            raise ValueError(
                f"hyperparameter {name!r} would not take effect: {type(cycle).__name__} replaces it by its own at "
                "every step. Build the schedule with cycle_momentum=False, or leave it out of the space."
            )


def flattened(schedulers: Iterable[Any]) -> Iterable[Any]:
    """Yield schedulers and those inside them (SequentialLR, ChainedScheduler)."""
    for scheduler in schedulers:
        inner = getattr(scheduler, "_schedulers", None)
        if inner:
            yield from flattened(inner)
        yield scheduler
