"""Networks that users bring, as their authors write them: what rules of an executor are not made on."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class CifarCNN(nn.Module):
    """The CNN of torch's tutorial for colour images, a size larger, on crops of 24x24."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(64 * 6 * 6, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        return self.fc2(functional.relu(self.fc1(x)))  # type: ignore[no-any-return]  # untyped calls


class ColourLeNet(nn.Module):
    """LeNet-5 on 32x32 colour images, as torch's tutorial has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = functional.relu(self.fc1(x))
        return self.fc3(functional.relu(self.fc2(x)))  # type: ignore[no-any-return]  # untyped calls


class Residual(nn.Module):
    """Two convolutions of 3x3 with group norm, and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(x + self.norm2(self.conv2(y)))


def residual() -> nn.Module:
    """Four residual blocks of 16 channels."""
    stem = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    blocks = [Residual(16) for _ in range(4)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Encoder(nn.Module):
    """A transformer of two layers of 32 on the next of 80 characters, read from the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 32)
        self.place = nn.Parameter(torch.zeros(1, 24, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 80)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the next character."""
        found: Tensor = self.layers(self.embedding(x) + self.place)
        return self.head(found.mean(dim=1))  # type: ignore[no-any-return]  # untyped calls
