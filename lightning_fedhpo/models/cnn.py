"""The convolutional network of the papers' FEMNIST experiments.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018: two convolutions of 5x5 with 32 and 64 channels, each
followed by maxima over 2x2, then a hidden layer of 2048. Dropout, which the FedEx papers tune, is on the hidden layer.
"""

from __future__ import annotations

from torch import nn

from lightning_fedhpo.arguments import number
from lightning_fedhpo.models.classifier import Classifier, Flat, check_image, check_sizes, made


class CNN(Classifier):
    """Classify small images, FEMNIST's 62 classes of 1x28x28 unless told otherwise.

    Args:
        channels: 1 for grey images, 3 for coloured ones.
        size: Height and width.
        classes: The number of labels.
        hidden: The width of the hidden layer.
        dropout: Probability of dropping a unit of the hidden layer.
        lr: Learning rate of SGD.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of SGD.

    Example:
        >>> sum(parameter.numel() for parameter in CNN().parameters())
        6603710
    """

    def __init__(
        self,
        channels: int = 1,
        size: int = 28,
        classes: int = 62,
        *,
        hidden: int = 2048,
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        check_image(channels, size, smallest=4)
        check_sizes(classes=classes, hidden=hidden)
        number("dropout", dropout, 0, 1)
        side = size // 2 // 2
        net = made(
            lambda: nn.Sequential(
                nn.Conv2d(channels, 32, 5, padding=2),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(32, 64, 5, padding=2),
                nn.ReLU(),
                nn.MaxPool2d(2),
                Flat(64 * side * side, "`size`"),
                nn.Linear(64 * side * side, hidden),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(hidden, classes),
            )
        )
        super().__init__(net, lr, momentum, weight_decay)
        self.save_hyperparameters(logger=False)
