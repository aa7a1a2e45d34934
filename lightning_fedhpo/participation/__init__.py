"""Who takes part in a round, and how devices behave: slow ones, and ones that fail. A new way is exported here."""

from lightning_fedhpo.participation.available import AvailableClients
from lightning_fedhpo.participation.base import Participation
from lightning_fedhpo.participation.by_size import ClientsBySize
from lightning_fedhpo.participation.devices import Devices
from lightning_fedhpo.participation.in_turn import ClientsInTurn
from lightning_fedhpo.participation.uniform import UniformClients

__all__ = ["AvailableClients", "ClientsBySize", "ClientsInTurn", "Devices", "Participation", "UniformClients"]
