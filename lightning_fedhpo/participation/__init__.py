"""Who takes part in a round, how devices behave, and which scores are seen. A new way is exported here."""

from lightning_fedhpo.participation.available import AvailableClients
from lightning_fedhpo.participation.base import Participation
from lightning_fedhpo.participation.by_size import ClientsBySize
from lightning_fedhpo.participation.devices import Devices
from lightning_fedhpo.participation.in_turn import ClientsInTurn
from lightning_fedhpo.participation.noisy_scores import NoisyScores
from lightning_fedhpo.participation.uniform import UniformClients

__all__ = [
    "AvailableClients",
    "ClientsBySize",
    "ClientsInTurn",
    "Devices",
    "NoisyScores",
    "Participation",
    "UniformClients",
]
