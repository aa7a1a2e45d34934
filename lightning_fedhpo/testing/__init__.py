"""Tests for authors of new tuners, algorithms and searches: a toy federation, and the contracts.

The contracts are plain functions that raise ``AssertionError``. They take a function that makes a new object:

>>> from lightning_fedhpo import FedProx
>>> check_resume(lambda: FedProx(mu=0.1))
"""

from lightning_fedhpo.testing.contracts import (
    check_aggregation,
    check_best,
    check_executor,
    check_hyperparameters,
    check_identity,
    check_nan_survives,
    check_resume,
    check_same_seed,
    check_suggestions,
)
from lightning_fedhpo.testing.toy import ToyModule, quiet_trainer, toy_data, toy_run, toy_tensors, uneven_data
from lightning_fedhpo.testing.toy_instances import toy_instance

__all__ = [
    "ToyModule",
    "check_aggregation",
    "check_best",
    "check_executor",
    "check_hyperparameters",
    "check_identity",
    "check_nan_survives",
    "check_resume",
    "check_same_seed",
    "check_suggestions",
    "quiet_trainer",
    "toy_data",
    "toy_instance",
    "toy_run",
    "toy_tensors",
    "uneven_data",
]
