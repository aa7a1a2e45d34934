"""A score that is better when larger is not to be minimised, and the other way round."""

from __future__ import annotations

import warnings

import pytest

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.arms.monitor_mode import doubtful_mode

LARGER = ["acc", "val/top1_acc", "val_acc5", "Accuracy", "test.auc", "val-f1", "r2", "mean IoU"]
SMALLER = ["val_loss", "loss", "val/error", "top1-err", "val.RMSE", "nll", "perplexity"]
UNKNOWN = ["score", "val", "accumulated", "floss", "val_acc_loss", "neg_mse", "negative_accuracy", ""]


def test_names_tell_which_mode_is_doubtful() -> None:
    for names, doubtful, better in ((LARGER, "min", "max"), (SMALLER, "max", "min")):
        for name in names:
            said = doubtful_mode(name, doubtful)
            assert f"{name!r}" in said and f"set mode={better!r}" in said
            assert doubtful_mode(name, better) == "", name
    for name in UNKNOWN:
        assert doubtful_mode(name, "min") == doubtful_mode(name, "max") == "", name


def test_the_loop_warns_once() -> None:
    with pytest.warns(UserWarning, match="'val_acc', but acc is better when larger: set mode='max'") as told:
        FederatedLoop(monitor="val_acc")
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FederatedLoop(monitor="val_acc", mode="max")
        FederatedLoop(monitor=None)
