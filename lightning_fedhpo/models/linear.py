"""Logistic regression: the model of convex experiments, and the fastest."""

from __future__ import annotations

from typing import Literal

from torch import nn

from lightning_fedhpo.models.classifier import Classifier, Flat, check_sizes


class Linear(Classifier):
    """Classify by one linear map of the flattened input.

    Example:
        >>> sum(parameter.numel() for parameter in Linear(features=20, classes=5).parameters())
        105
    """

    def __init__(
        self,
        features: int = 784,
        classes: int = 10,
        *,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        check_sizes(features=features, classes=classes)
        net = nn.Sequential(Flat(features, "features"), nn.Linear(features, classes))
        super().__init__(net, lr, momentum, weight_decay, optimizer)
        self.save_hyperparameters(logger=False)
