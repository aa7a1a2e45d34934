"""The convolutional network of McMahan et al.'s CIFAR-10 experiments.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, take the
model of TensorFlow's tutorial: two convolutions of 5x5 with 64 channels, each followed by maxima over 3x3 every two
pixels, and linear layers of 384, 192 and 10.

Deviations: the paper crops, mirrors, brightens and whitens its images at random; here nothing is changed. Its images
are of 24x24, which gives 1,068,298 parameters. Here they are whole by default (32x32: 1,756,426 parameters);
``cifar10(size=24)`` keeps their middle. The tutorial's local response normalisation is left out: with its constants it
divides activations around 1 by 1.001, and it takes 40 % of a step's time. Weights begin as torch has them. Dropout,
which the FedEx papers tune, is on the two hidden linear layers; the tutorial's weight decay of these layers is left to
the optimizer.
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


class CifarCNN(ImageClassifier):
    """Classify photographs of 3x32x32 unless told otherwise.

    Args:
        maps: Channels of the two convolutions.
        hidden: Widths of the hidden layers.

    Example:
        >>> sum(parameter.numel() for parameter in CifarCNN(size=24).parameters())
        1068298
    """

    def __init__(
        self,
        channels: int = 3,
        size: int = 32,
        classes: int = 10,
        *,
        maps: Sequence[int] = (64, 64),
        hidden: Sequence[int] = (384, 192),
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        check_kinds(CifarCNN, locals())
        check_image(size, smallest=6, channels=channels, classes=classes)
        first, second = check_widths("maps", maps, 2)
        features = second * (size // 2 // 2) ** 2
        net = nn.Sequential(
            *convolution(channels, first, pool=3),
            *convolution(first, second, pool=3),
            Flat(features, "size"),
            *hidden_layers(dropout, features, *check_widths("hidden", hidden), classes),
        )
        super().__init__(net, lr, momentum, weight_decay, optimizer)
        self.save_hyperparameters(logger=False)
