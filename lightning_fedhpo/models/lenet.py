"""LeNet-5.

LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proceedings of the IEEE, 1998. Deviations, all
of them usual by now: ReLU for the scaled hyperbolic tangent, maxima for trained averages in pooling, every feature map
of the second convolution connected to all of the first, and a linear layer for the Gaussian connections.
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


class LeNet(ImageClassifier):
    """Classify small images, 1x28x28 or 3x32x32 for instance.

    Args:
        size: Height and width; below 32 the images are padded by two pixels, as the paper pads digits of 28.
        maps: Channels of the two convolutions.
        hidden: Widths of the hidden layers.

    Example:
        >>> sum(parameter.numel() for parameter in LeNet(channels=1, size=28).parameters())
        61706
    """

    def __init__(
        self,
        channels: int = 1,
        size: int = 28,
        classes: int = 10,
        *,
        maps: Sequence[int] = (6, 16),
        hidden: Sequence[int] = (120, 84),
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        check_kinds(LeNet, locals())
        check_image(size, smallest=12, channels=channels, classes=classes)
        first, second = check_widths("maps", maps, 2)
        padding = 2 if size < 32 else 0
        features = second * (((size + 2 * padding - 4) // 2 - 4) // 2) ** 2
        net = nn.Sequential(
            *convolution(channels, first, padding),
            *convolution(first, second, padding=0),
            Flat(features, "size"),
            *hidden_layers(dropout, features, *check_widths("hidden", hidden), classes),
        )
        super().__init__(net, lr, momentum, weight_decay, optimizer)
        self.save_hyperparameters(logger=False)
