"""Several processes that share a run's jobs: who they are, who runs what, and what goes round between them.

Every process holds all arms and begins every round alike, since cohorts and suggestions are functions of the seed and
of the state. Each trains its share of the jobs and sums up what its clients send, and once a round the sums and the
results go round. Up to the order of those sums all are then where one process would be.
"""

from lightning_fedhpo.processes.exchange import ROOM, be_patient, gather, let_go, spread, takes_over
from lightning_fedhpo.processes.failures import is_alone, is_lost, tell_once, together
from lightning_fedhpo.processes.members import be_first, is_first, place, rank, world
from lightning_fedhpo.processes.sharing import combined, share
from lightning_fedhpo.processes.telling import is_told, told

__all__ = [
    "ROOM",
    "be_first",
    "be_patient",
    "combined",
    "gather",
    "is_alone",
    "is_first",
    "is_lost",
    "is_told",
    "let_go",
    "place",
    "rank",
    "share",
    "spread",
    "takes_over",
    "tell_once",
    "together",
    "told",
    "world",
]
