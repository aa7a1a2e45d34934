"""Residual networks of 18 and of 50 layers.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016. FedPop trains the one of 18 layers on domains of
images, and the one of 50 on ImageNet-1k.

Deviations: group norm (Wu and He, "Group Normalization", ECCV 2018) is the default, because averages of statistics over
clients with different labels fit none of them (Hsieh et al., "The Non-IID Data Quagmire of Decentralized Machine
Learning", ICML 2020). In the network of 50 layers, the convolution of 3x3 has a block's stride, as is usual by now.
Images of up to 64 pixels get a first convolution of 3x3 without pooling. Dropout, which the FedEx papers tune, comes
before the last layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo.arguments import check_kinds, number
from lightning_fedhpo.models.classifier import ImageClassifier, check_image, check_sizes

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
"""Blocks of the four stages."""
SMALL = 64
"""Images of up to this many pixels have the small stem."""


class Residual(nn.Module):
    """Two convolutions of 3x3, or a bottleneck of 1x1, 3x3 and 1x1, whose result is added to the input."""

    def __init__(
        self, channels: int, maps: int, stride: int, bottleneck: bool, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        wide = 4 * maps if bottleneck else maps
        if bottleneck:
            layers = [_convolution(channels, maps, 1), norm(maps), nn.ReLU(), _convolution(maps, maps, 3, stride)]
            layers += [norm(maps), nn.ReLU(), _convolution(maps, wide, 1), norm(wide)]
        else:
            layers = [_convolution(channels, maps, 3, stride), norm(maps), nn.ReLU(), _convolution(maps, maps, 3)]
            layers += [norm(maps)]
        self.body = nn.Sequential(*layers)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != wide:
            self.shortcut = nn.Sequential(_convolution(channels, wide, 1, stride), norm(wide))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's maps."""
        return functional.relu(self.body(x) + self.shortcut(x))


class ResNet(ImageClassifier):
    """Classify images, photographs of 3x32x32 unless told otherwise.

    Args:
        size: Height and width of the images: decides about the stem.
        depth: 18, or 50.
        width: Channels of the first stage; each further one has twice as many.
        norm: ``"group"``, or ``"batch"``.
        groups: Of group norm.
        stem: ``"small"``, a convolution of 3x3; ``"large"``, one of 7x7 at every second pixel, and pooling, as in the
            paper; or None: small for images of up to 64 pixels.

    Example:
        >>> sum(parameter.numel() for parameter in ResNet(size=224, classes=1000).parameters())
        11689512
    """

    def __init__(
        self,
        channels: int = 3,
        size: int = 32,
        classes: int = 10,
        *,
        depth: Literal[18, 50] = 18,
        width: int = 64,
        norm: Literal["group", "batch"] = "group",
        groups: int = 32,
        stem: Literal["small", "large"] | None = None,
        dropout: float = 0.0,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        check_kinds(ResNet, locals())
        check_image(size, smallest=1, channels=channels, classes=classes)
        check_sizes(width=width, groups=groups)
        number("dropout", dropout, 0, 1)
        if norm == "group" and width % groups:
            raise ValueError(f"`width` must be a multiple of `groups`, got {width} and {groups}: take fewer groups.")

        def normed(maps: int) -> nn.Module:
            return nn.GroupNorm(groups, maps) if norm == "group" else nn.BatchNorm2d(maps)

        small = size <= SMALL if stem is None else stem == "small"
        layers = [
            _convolution(channels, width, 3) if small else _convolution(channels, width, 7, stride=2),
            normed(width),
            nn.ReLU(),
            *([] if small else [nn.MaxPool2d(3, stride=2, padding=1)]),
        ]
        maps, bottleneck = width, depth == 50
        for stage, blocks in enumerate(BLOCKS[depth]):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(Residual(maps, width << stage, stride, bottleneck, normed))
                maps = (width << stage) * (4 if bottleneck else 1)
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(maps, classes)]
        super().__init__(nn.Sequential(*layers), lr, momentum, weight_decay, optimizer)
        self.save_hyperparameters(logger=False)


def _convolution(channels: int, maps: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels, maps, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
