"""How a learning rate is set where a schedule owns it: as if the module had been built with it from the start.

Most schedules are a factor times a base that they keep. ``OneCycleLR`` and ``CyclicLR`` go between rates of their own,
of which the highest, ``max_lr``, can be set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.optim.lr_scheduler import CyclicLR, OneCycleLR

Access = tuple[Callable[[Any], None], Callable[[], Any]]
"""Sets a value, and reads it back."""


def base_rate(groups: Sequence[dict[str, Any]], schedulers: Iterable[Any]) -> Access:
    """Return access to the learning rate that schedules start from."""
    nested = list(flattened(schedulers))
    owners = [type(scheduler).__name__ for scheduler in nested if isinstance(scheduler, OneCycleLR | CyclicLR)]
    if owners:
        raise ValueError(
            f"hyperparameter 'lr' would not take effect: {owners[0]} replaces the learning rate by its own. Bind "
            "'max_lr' instead, or use another scheduler."
        )
    # At step 0 a schedule is a factor times its base: warm-up starts below one, most others at one.
    factors = [group["lr"] / group["initial_lr"] if group.get("initial_lr") else 1.0 for group in groups]
    based = [scheduler for scheduler in nested if hasattr(scheduler, "base_lrs")]

    def write(value: Any) -> None:
        for group, factor in zip(groups, factors, strict=True):
            group["lr"] = value * factor
            if "initial_lr" in group:
                group["initial_lr"] = value
        for scheduler in based:
            scheduler.base_lrs = [value] * len(scheduler.base_lrs)
            if hasattr(scheduler, "_last_lr"):
                scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]

    def read() -> Any:
        return based[0].base_lrs[0] if based else groups[0]["lr"]

    return write, read


def highest_rate(schedulers: Iterable[Any]) -> Access | None:
    """Return access to ``max_lr`` of the schedules that have one, None where there is none."""
    cycles = [scheduler for scheduler in flattened(schedulers) if isinstance(scheduler, OneCycleLR | CyclicLR)]
    if not cycles:
        return None

    def write(value: Any) -> None:
        for cycle in cycles:
            if isinstance(cycle, CyclicLR):
                cycle.max_lrs = [value] * len(cycle.max_lrs)
                continue
            for group in cycle.optimizer.param_groups:  # its other rates are fractions of the highest
                share = value / group["max_lr"]
                group.update({key: group[key] * share for key in ("lr", "initial_lr", "min_lr")}, max_lr=value)

    def read() -> Any:
        first = cycles[0]
        return first.max_lrs[0] if isinstance(first, CyclicLR) else first.optimizer.param_groups[0]["max_lr"]

    return write, read


def flattened(schedulers: Iterable[Any]) -> Iterable[Any]:
    """Yield schedulers and those inside them (SequentialLR, ChainedScheduler)."""
    for scheduler in schedulers:
        inner = getattr(scheduler, "_schedulers", None)
        if inner:
            yield from flattened(inner)
        yield scheduler
