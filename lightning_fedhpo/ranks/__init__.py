"""Several processes that share a run's jobs: who they are, who runs what, and what goes round between them.

Every process holds all arms and begins every round alike, since cohorts and suggestions are functions of the seed and
of the state. Each trains its share of the jobs and sums up what its clients send, and once a round the sums and the
results go round. Up to the order of those sums all are then where one process would be.
"""

from lightning_fedhpo.ranks.exchange import ROOM as ROOM
from lightning_fedhpo.ranks.exchange import gather as gather
from lightning_fedhpo.ranks.exchange import let_go as let_go
from lightning_fedhpo.ranks.exchange import spread as spread
from lightning_fedhpo.ranks.failures import is_lost as is_lost
from lightning_fedhpo.ranks.failures import is_told as is_told
from lightning_fedhpo.ranks.failures import together as together
from lightning_fedhpo.ranks.failures import told as told
from lightning_fedhpo.ranks.members import is_first as is_first
from lightning_fedhpo.ranks.members import place as place
from lightning_fedhpo.ranks.members import rank as rank
from lightning_fedhpo.ranks.members import world as world
from lightning_fedhpo.ranks.sharing import combined as combined
from lightning_fedhpo.ranks.sharing import share as share
