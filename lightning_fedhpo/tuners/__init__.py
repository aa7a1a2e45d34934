"""Tuners: which configuration each client trains with. A new one is exported here."""

from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.fedex import FedEx
from lightning_fedhpo.tuners.fixed import Fixed
from lightning_fedhpo.tuners.multiplicative import MultiplicativeWeights

__all__ = ["FedEx", "Fixed", "MultiplicativeWeights", "Tuner"]
