"""Several processes that share a run's jobs: who they are, who runs what, and what goes round between them.

Every process holds all arms and begins every round alike, since cohorts and suggestions are functions of the seed and
of the state. Each trains its share of the jobs and sums up what its clients send. Once a round the results and the sums
go round, by torch's own collectives; afterwards all processes have the same state.
"""

from lightning_fedhpo.processes.collectives import (
    ApartError,
    LostProcessError,
    add_up,
    gather,
    leave,
    meeting,
    spread,
)
from lightning_fedhpo.processes.failures import common, is_alone, is_common, is_silent, together
from lightning_fedhpo.processes.members import be_first, is_first, rank, world
from lightning_fedhpo.processes.sharing import share, shared_round

__all__ = [
    "ApartError",
    "LostProcessError",
    "add_up",
    "be_first",
    "common",
    "gather",
    "is_alone",
    "is_common",
    "is_first",
    "is_silent",
    "leave",
    "meeting",
    "rank",
    "share",
    "shared_round",
    "spread",
    "together",
    "world",
]
