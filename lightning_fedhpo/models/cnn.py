"""The convolutional network of the papers' FEMNIST experiments.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018: two convolutions of 5x5 with 32 and 64 channels, each
followed by maxima over 2x2, then a hidden layer of 2048. Dropout, which the FedEx papers tune, is on the hidden layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.models.classifier import (
    Flat,
    ImageClassifier,
    check_image,
    check_widths,
    convolution,
    hidden_layers,
)


class CNN(ImageClassifier):
    """Classify small images, FEMNIST's 62 classes of 1x28x28 unless told otherwise.

    Args:
        maps: Channels of the two convolutions.
        hidden: Width of the hidden layer.

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
        maps: Sequence[int] = (32, 64),
        hidden: int = 2048,
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        check_kinds(CNN, locals())
        check_image(size, smallest=4, channels=channels, classes=classes, hidden=hidden)
        first, second = check_widths("maps", maps, 2)
        features = second * (size // 2 // 2) ** 2
        net = nn.Sequential(
            *convolution(channels, first),
            *convolution(first, second),
            Flat(features, "size"),
            *hidden_layers(dropout, features, hidden, classes),
        )
        super().__init__(net, lr, momentum, weight_decay, optimizer)
        self.save_hyperparameters(logger=False)
