"""Tuners: which configuration each client trains with. A new one is exported here."""

from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.fixed import Fixed

__all__ = ["Fixed", "Tuner"]
