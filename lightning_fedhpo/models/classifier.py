"""What the reference models share: cross-entropy, its error, and SGD or Adam; a model adds its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo.arguments import check_kinds, number, shown, whole


class Classifier(LightningModule):
    """Train any network that returns logits.

    Logs ``train_loss``, and of validation and test ``<stage>_loss``, ``<stage>_acc`` and ``<stage>_error``. Logits have
    their classes in the second dimension; where inputs are sequences and every position has a label, the positions
    follow.

    Args:
        net: Maps a batch of inputs to logits.
        lr: Of the optimizer, as `momentum` and `weight_decay`.
        optimizer: ``"sgd"``, or ``"adam"``, which has no momentum of this kind.

    Example:
        >>> model = Classifier(nn.Linear(4, 3), lr=0.5)
        >>> model(torch.zeros(2, 4)).shape, model.configure_optimizers().defaults["lr"]
        (torch.Size([2, 3]), 0.5)
    """

    def __init__(
        self,
        net: nn.Module,
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
    ) -> None:
        super().__init__()
        check_kinds(Classifier, locals())
        self.net = net
        self.lr = number("lr", lr, above=0)
        self.momentum = number("momentum", momentum, low=0, below=1)
        self.weight_decay = number("weight_decay", weight_decay, low=0)
        if optimizer == "adam" and momentum:
            raise ValueError(f"Adam has no `momentum`, got {momentum}: leave it at 0, or take optimizer='sgd'.")
        self.optimizer = optimizer

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.net(x)  # type: ignore[no-any-return]  # a module's call is untyped

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        """Return the loss."""
        x, y = batch
        loss = functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        """Log loss, accuracy and error."""
        self._score("val", batch)

    def test_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        """Log loss, accuracy and error."""
        self._score("test", batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        if self.optimizer == "adam":
            return torch.optim.Adam(self.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    def _score(self, stage: str, batch: Sequence[Tensor]) -> None:
        x, y = batch
        logits = self(x)
        accuracy = (logits.argmax(1) == y).float().mean()
        self.log(f"{stage}_loss", functional.cross_entropy(logits, y))
        self.log(f"{stage}_acc", accuracy)
        self.log(f"{stage}_error", 1.0 - accuracy)


class ImageClassifier(Classifier):
    """A classifier whose net begins with a convolution."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, or raise where the batch is not one of images."""
        channels = self.hparams["channels"]
        if x.ndim != 4 or x.shape[1] != channels:
            raise ValueError(
                f"{type(self).__name__} takes images here, as batches of shape (examples, {channels}, height, width), "
                f"got one of shape {tuple(x.shape)}: data of images are mnist, fashion_mnist, femnist and "
                "synthetic_images with 1 channel, and with 3 cifar10 and those of domains and of ImageNet; Linear and "
                "MLP take all others."
            )
        return super().forward(x)


class Flat(nn.Flatten):
    """Make vectors of inputs, or raise where they are not as long as the next layer expects.

    Args:
        features: The length.
        argument: The model's argument that decides about it, for the message.
    """

    def __init__(self, features: int, argument: str) -> None:
        super().__init__()
        self._features = features
        self._argument = argument

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors."""
        vectors = super().forward(x)
        if vectors.shape[1] != self._features:
            raise ValueError(
                f"this model takes {self._features} numbers an example here, got {vectors.shape[1]}, from a batch of "
                f"shape {tuple(x.shape)}: set its `{self._argument}` to what the data has."
            )
        return vectors


def hidden_layers(dropout: float, *widths: int) -> list[nn.Module]:
    """Return linear layers from width to width, each but the last with ReLU and dropout.

    >>> [type(layer).__name__ for layer in hidden_layers(0.5, 8, 4, 2)]
    ['Linear', 'ReLU', 'Dropout', 'Linear']
    """
    number("dropout", dropout, 0, 1)
    layers: list[nn.Module] = [nn.Linear(widths[0], widths[1])]
    for narrow, wide in zip(widths[1:], widths[2:], strict=False):
        layers += [nn.ReLU(), nn.Dropout(dropout), nn.Linear(narrow, wide)]
    return layers


def convolution(channels: int, maps: int, padding: int = 2, pool: int = 2) -> list[nn.Module]:
    """Return a convolution of 5x5, ReLU, and maxima over `pool` x `pool` pixels at every second one."""
    pooling = nn.MaxPool2d(pool, stride=2, ceil_mode=pool > 2)  # windows that overlap reach over the edge
    return [nn.Conv2d(channels, maps, 5, padding=padding), nn.ReLU(), pooling]


def check_image(size: int, smallest: int, **sizes: int) -> None:
    """Raise unless an image of this size survives a model's pooling, and the sizes of layers can be meant."""
    check_sizes(**sizes)
    why = "of smaller images the pooling leaves nothing"
    whole("`size`, the height and width of the images,", size, smallest, 10**4, why)


def check_widths(name: str, widths: Sequence[int], count: int | None = None) -> list[int]:
    """Return the widths of layers as plain numbers, or raise unless they can be meant.

    >>> check_widths("hidden", (120, 84))
    [120, 84]
    """
    if len(widths) != (count or len(widths)) or not widths:
        raise ValueError(f"`{name}` must be {count or 'at least one'} number(s), got {shown(widths)}.")
    return [whole(f"`{name}`, the widths of layers,", width, high=10**6) for width in widths]


def check_sizes(**sizes: int) -> None:
    """Raise unless the sizes of layers can be meant."""
    for name, size in sizes.items():
        whole(name, size, high=10**6)
