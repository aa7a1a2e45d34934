"""What the reference models share: cross-entropy, its error, and plain SGD; a model adds its layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo.data.assignment import check_count


class Classifier(LightningModule):
    """Train any network that returns logits.

    Logs ``train_loss``, and of validation and test ``<stage>_loss``, ``<stage>_acc`` and ``<stage>_error``. Logits have
    their classes in the second dimension; where inputs are sequences and every position has a label, the positions
    follow.

    Args:
        net: Maps a batch of inputs to logits.
        lr: Learning rate of SGD.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of SGD.

    Example:
        >>> model = Classifier(nn.Linear(4, 3), lr=0.5)
        >>> model(torch.zeros(2, 4)).shape, model.configure_optimizers().defaults["lr"]
        (torch.Size([2, 3]), 0.5)
    """

    def __init__(self, net: nn.Module, lr: float = 0.1, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__()
        self.net = net
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay

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
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    def _score(self, stage: str, batch: Sequence[Tensor]) -> None:
        x, y = batch
        logits = self(x)
        accuracy = (logits.argmax(1) == y).float().mean()
        self.log(f"{stage}_loss", functional.cross_entropy(logits, y))
        self.log(f"{stage}_acc", accuracy)
        self.log(f"{stage}_error", 1.0 - accuracy)


class Flat(nn.Flatten):
    """Make vectors of inputs and see that they are as long as the next layer expects.

    Args:
        features: The length.
        argument: The model's arguments that decide about it, for the message.

    Example:
        >>> Flat(6, "features")(torch.zeros(5, 2, 3)).shape
        torch.Size([5, 6])
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
                f"shape {tuple(x.shape)}: set its {self._argument} to what the data has."
            )
        return vectors


def check_image(channels: int, size: int, smallest: int) -> None:
    """Raise unless an image of these dimensions survives a model's pooling."""
    check_count("channels", channels)
    if isinstance(size, bool) or not isinstance(size, int) or size < smallest:
        raise ValueError(
            f"`size`, the height and width of the images, must be a whole number of at least {smallest}, got {size!r}: "
            "of smaller ones the pooling leaves nothing."
        )
