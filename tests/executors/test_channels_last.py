"""Images have channels innermost where convolutions gain from it, and nobody sees another difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_fedhpo import FederatedData, FederatedLoop, Iid
from lightning_fedhpo.setup import prepare
from lightning_fedhpo.testing import ToyModule, quiet_trainer


class Flat(nn.Module):
    """Flattens as many old tutorials do."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1)


class ByAddress(nn.Module):
    """Reads numbers as they lie in memory."""

    def forward(self, x: Tensor) -> Tensor:
        width = x[0].numel()
        return x.as_strided((x.shape[0], width), (width, 1))


class Network(ToyModule):
    """A small network for images, which notes how its last image came."""

    def __init__(self, channels: int, *between: nn.Module, flat: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        pool = nn.MaxPool2d(2)
        self.net = nn.Sequential(
            nn.Conv2d(channels, 4, 3), *between, nn.ReLU(), pool, flat or nn.Flatten(), nn.Linear(4 * 3 * 3, 3)
        )
        self.last = dict[str, bool]()

    def forward(self, x: Tensor) -> Tensor:
        stage = "test" if self.trainer.testing else "training" if self.training else "validation"
        found = self.net[0](x)
        self.last[stage] = found.is_contiguous(memory_format=torch.channels_last)
        return self.net(x)


def images(channels: int) -> FederatedData:
    """Return noise for three clients."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(90, channels, 8, 8, generator=generator), torch.randint(0, 3, (90,), generator=generator)
    return FederatedData((x, y), Iid(3), fractions=(0.6, 0.2, 0.2), batch_size=4)


def fitted(module: ToyModule, channels: int, rounds: int = 1) -> Any:
    trainer = quiet_trainer(rounds, FederatedLoop(cohort=3, executor="sequential"))
    trainer.fit(module, datamodule=images(channels))
    return trainer


@pytest.mark.parametrize("channels", [1, 3], ids=["gray", "colours"])
def test_convolutions_get_channels_inside_and_train_the_same(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, plain = Network(channels), Network(channels)
    trainer = fitted(module, channels)
    assert module.last == {"training": True, "validation": True}
    trainer.test(module, datamodule=images(channels), verbose=False)
    assert module.last["test"] is False, "a test gets images as they are"
    monkeypatch.setattr(prepare, "lay_out_images", lambda *arguments: None)
    fitted(plain, channels)
    assert plain.last == {"training": False, "validation": False}
    for one, other in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
        assert one.is_contiguous()


@pytest.mark.parametrize(
    ("module", "inside"),
    [
        (Network(3, flat=ByAddress()), False),
        (Network(3, flat=Flat()), False),
        (Network(3, nn.InstanceNorm2d(4)), False),
        (Network(3, nn.Dropout()), True),
    ],
    ids=["address", "view", "instance norm", "dropout"],
)
def test_a_module_that_minds_gets_images_as_they_are(module: Network, inside: bool) -> None:
    fitted(module, 3)
    assert module.last == {"training": inside, "validation": inside}
