"""The perceptron with one hidden layer of FedTune's experiments, 784-128-10 unless told otherwise."""

from __future__ import annotations

from typing import Literal

from torch import nn

from lightning_fedhpo.models.classifier import Classifier, Flat, check_sizes, hidden_layers


class MLP(Classifier):
    """Classify by one hidden layer.

    Example:
        >>> sum(parameter.numel() for parameter in MLP().parameters())
        101770
    """

    def __init__(
        self,
        features: int = 784,
        classes: int = 10,
        *,
        hidden: int = 128,
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        check_sizes(features=features, classes=classes, hidden=hidden)
        net = nn.Sequential(Flat(features, "features"), *hidden_layers(dropout, features, hidden, classes))
        super().__init__(net, lr, momentum, weight_decay, optimizer)
        self.save_hyperparameters(logger=False)
