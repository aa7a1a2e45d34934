"""How jobs are to be run, as the user says it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from lightning_fedhpo import machine
from lightning_fedhpo.arguments import check_kinds, shown, whole

MEGABYTE = 1 << 20
DEVICE_SHARE = 0.25
"""The part of a device's memory for the jobs that are computed together. Data may take a half, torch needs the rest."""


@dataclass(frozen=True, kw_only=True)
class Threads:
    """What all settings have.

    Args:
        threads: With how many threads torch computes the jobs; None: one where steps are small, else torch's number.
    """

    threads: int | None = None

    def __post_init__(self) -> None:
        check_kinds(type(self), vars(self))
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
        compile: Whether ``torch.compile`` compiles the batched steps; None: on a CPU with a C++ compiler. It costs
            some seconds, once on a machine. Convolutions of images are never compiled: they would be slower.
        memory: How many megabytes the jobs that are computed together may take; more jobs are computed in turns. None:
            1024 on a CPU, a quarter of the memory of any other device.

    Example:
        >>> Vectorized(compile=False).bytes_on(torch.device("cpu")) // MEGABYTE
        1024
    """

    compile: bool | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            whole("memory", self.memory, why="None takes what the device has")

    def bytes_on(self, device: torch.device) -> int:
        """Return how many bytes jobs may take on a device; what is free there just now does not matter."""
        if self.memory is not None:
            return self.memory * MEGABYTE
        memory = machine.whole_memory(device)
        return 1024 * MEGABYTE if math.isinf(memory) else int(DEVICE_SHARE * memory)


@dataclass(frozen=True)
class Auto(Threads):
    """Whichever is likely to be faster."""


Setting = Sequential | Vectorized | Auto
BY_NAME: dict[str, type[Setting]] = {"auto": Auto, "sequential": Sequential, "vectorized": Vectorized}


def setting_of(executor: object) -> Setting:
    """Return the setting that a name stands for, or the one that was given.

    >>> setting_of("vectorized")
    Vectorized(threads=None, compile=None, memory=None)
    """
    if isinstance(executor, str) and executor in BY_NAME:
        return BY_NAME[executor]()
    if isinstance(executor, Sequential | Vectorized | Auto):
        return executor
    raise ValueError(
        f"`executor` must be one of {', '.join(map(repr, BY_NAME))}, or Sequential(), Vectorized(...) or Auto() of "
        f"lightning_fedhpo.executors, got {shown(executor)}."
    )
