"""Tuners: which configuration each client trains with. A new one is exported here."""

from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.fathom import Fathom
from lightning_fedhpo.tuners.fedex import FedEx
from lightning_fedhpo.tuners.fedpop import FedPop
from lightning_fedhpo.tuners.fedtune import FedTune
from lightning_fedhpo.tuners.fedtuning import FedTuning
from lightning_fedhpo.tuners.fixed import Fixed
from lightning_fedhpo.tuners.multiplicative import MultiplicativeWeights
from lightning_fedhpo.tuners.replay import Replay

__all__ = [
    "Fathom",
    "FedEx",
    "FedPop",
    "FedTune",
    "FedTuning",
    "Fixed",
    "MultiplicativeWeights",
    "Replay",
    "Tuner",
]
