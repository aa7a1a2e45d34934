"""Several processes that share a run's jobs: who they are, who runs what, and what goes round between them.

Every process holds all arms and begins every round alike, since cohorts and suggestions are functions of the seed and
of the state. Each trains its share of the jobs and sums up what its clients send. Once a round the results and the sums
go round, by torch's own collectives; afterwards all processes have the same state.
"""

from lightning_fedhpo.processes.collectives import (
    ApartError,
    LostProcessError,
    all_reduce_in_place,
    broadcast_first,
    disconnect,
    gather,
    meeting,
)
from lightning_fedhpo.processes.failures import common, fail_together, is_alone, is_common, is_silent
from lightning_fedhpo.processes.members import be_first, is_first, rank, world
from lightning_fedhpo.processes.sharing import divide_jobs, shared_round

__all__ = [
    "ApartError",
    "LostProcessError",
    "all_reduce_in_place",
    "be_first",
    "common",
    "gather",
    "is_alone",
    "is_common",
    "is_first",
    "is_silent",
    "disconnect",
    "meeting",
    "rank",
    "divide_jobs",
    "shared_round",
    "broadcast_first",
    "fail_together",
    "world",
]
