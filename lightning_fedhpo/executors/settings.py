"""How jobs are to be run, as the user says it."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_fedhpo.arguments import check_kinds, shown, whole

MEGABYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Threads:
    """What all settings have.

    Args:
        threads: With how many threads torch computes the jobs; None: one where steps are small, else torch's number.
    """

    threads: int | None = None

    def __post_init__(self) -> None:
        check_kinds(Threads, vars(self))
        if self.threads is not None:
            whole("threads", self.threads, high=1024, why="None decides by the size of a step")


@dataclass(frozen=True)
class Sequential(Threads):
    """One job after another."""


@dataclass(frozen=True)
class Vectorized(Threads):
    """Jobs of all clients and arms side by side, where the module allows it.

    Args:
        threads: As for all settings.
        compile: Whether ``torch.compile`` compiles the batched steps; None: where there is a C++ compiler. It costs
            some seconds, once on a machine. Convolutions of images are never compiled: they would be slower.
        memory: How many megabytes the jobs that are computed together may take; more jobs are computed in turns.

    Example:
        >>> Vectorized(compile=False).memory
        1024
    """

    compile: bool | None = None
    memory: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kinds(Vectorized, vars(self))
        whole("memory", self.memory)


@dataclass(frozen=True)
class Auto(Threads):
    """Whichever is likely to be faster."""


Setting = Sequential | Vectorized | Auto
BY_NAME: dict[str, type[Setting]] = {"auto": Auto, "sequential": Sequential, "vectorized": Vectorized}


def setting_of(executor: object) -> Setting:
    """Return the setting that a name stands for, or the one that was given.

    >>> setting_of("vectorized")
    Vectorized(threads=None, compile=None, memory=1024)
    """
    if isinstance(executor, str) and executor in BY_NAME:
        return BY_NAME[executor]()
    if isinstance(executor, Sequential | Vectorized | Auto):
        return executor
    raise ValueError(
        f"`executor` must be one of {', '.join(map(repr, BY_NAME))}, or Sequential(), Vectorized(...) or Auto() of "
        f"lightning_fedhpo.executors, got {shown(executor)}."
    )
