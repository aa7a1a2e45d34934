"""A score that is better when larger is not to be minimised, and the other way round."""

from __future__ import annotations

import warnings

import pytest

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.setup.monitor_mode import doubtful_mode


@pytest.mark.parametrize(
    "name", ["acc", "val/top1_acc", "val_acc5", "Accuracy", "test.auc", "val-f1", "r2", "mean IoU"]
)
def test_names_that_are_better_when_larger(name: str) -> None:
    assert f"{name!r}" in doubtful_mode(name, "min") and "set mode='max'" in doubtful_mode(name, "min")
    assert doubtful_mode(name, "max") == ""


@pytest.mark.parametrize("name", ["val_loss", "loss", "val/error", "top1-err", "val.RMSE", "nll", "perplexity"])
def test_names_that_are_better_when_smaller(name: str) -> None:
    assert f"{name!r}" in doubtful_mode(name, "max") and "set mode='min'" in doubtful_mode(name, "max")
    assert doubtful_mode(name, "min") == ""


@pytest.mark.parametrize(
    "name", ["score", "val", "accumulated", "floss", "val_acc_loss", "neg_mse", "negative_accuracy", ""]
)
def test_names_that_say_nothing(name: str) -> None:
    assert doubtful_mode(name, "min") == doubtful_mode(name, "max") == ""


def test_the_loop_warns_once() -> None:
    with pytest.warns(UserWarning, match="'val_acc', but acc is better when larger: set mode='max'") as told:
        FederatedLoop(monitor="val_acc")
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FederatedLoop(monitor="val_acc", mode="max")
        FederatedLoop(monitor=None)
