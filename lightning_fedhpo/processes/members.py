"""Who the processes of a run are."""

from __future__ import annotations

import os

from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import distributed


def world() -> int:
    """Return how many processes run together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Return this process's number among them."""
    return distributed.get_rank() if world() > 1 else 0


def is_first() -> bool:
    """Whether this process writes files and speaks, also before the processes have found each other."""
    if world() > 1:
        return distributed.get_rank() == 0
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    return not getattr(rank_zero_only, "rank", 0) and (node == "0" or "RANK" in os.environ)


def be_first() -> None:
    """Make this process the first one: it runs alone, whatever number its launcher gave it."""
    rank_zero_only.rank = 0  # type: ignore[attr-defined]  # Lightning asks for it
