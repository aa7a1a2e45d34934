"""LeNet-5.

LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proceedings of the IEEE, 1998. Deviations, all
of them usual by now: ReLU for the scaled hyperbolic tangent, maxima for trained averages in pooling, every feature map
of the second convolution connected to all of the first, and a linear layer for the Gaussian connections.
"""

from __future__ import annotations

from torch import nn

from lightning_fedhpo.arguments import number
from lightning_fedhpo.models.classifier import Classifier, Flat, check_image, check_sizes, made


class LeNet(Classifier):
    """Classify small images, 1x28x28 or 3x32x32 for instance.

    Args:
        channels: 1 for grey images, 3 for coloured ones.
        size: Height and width; below 32 the images are padded by two pixels, as the paper pads digits of 28.
        classes: The number of labels.
        dropout: Probability of dropping a unit of the two hidden linear layers.
        lr: Learning rate of SGD.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of SGD.

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
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        check_image(channels, size, smallest=12)
        check_sizes(classes=classes)
        number("dropout", dropout, 0, 1)
        padding = 2 if size < 32 else 0
        side = ((size + 2 * padding - 4) // 2 - 4) // 2
        net = made(
            lambda: nn.Sequential(
                nn.Conv2d(channels, 6, 5, padding=padding),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(6, 16, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                Flat(16 * side * side, "`size`"),
                nn.Linear(16 * side * side, 120),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(120, 84),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(84, classes),
            )
        )
        super().__init__(net, lr, momentum, weight_decay)
        self.save_hyperparameters(logger=False)
