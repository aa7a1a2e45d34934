"""Images have channels innermost where convolutions gain from it, and nobody sees another difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_fedhpo import FederatedData, FederatedLoop, Fixed, Iid
from lightning_fedhpo.data.images import any_view
from lightning_fedhpo.setup import prepare
from lightning_fedhpo.testing import ToyModule, quiet_trainer


class Flat(nn.Module):
    """Flattens as many old tutorials do."""

    def forward(self, x: Tensor) -> Tensor:
        """Return rows of numbers that lie in one piece."""
        return x.view(x.shape[0], -1)


class ByAddress(nn.Module):
    """Reads numbers as they lie in memory."""

    def forward(self, x: Tensor) -> Tensor:
        """Return rows of numbers in whatever order they have."""
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
        self.last: dict[str, bool] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        stage = "test" if self.trainer.testing else "training" if self.training else "validation"
        inside = self.net[0](x).is_contiguous(memory_format=torch.channels_last)
        self.last[stage] = inside
        return self.net(x)


def images(channels: int) -> FederatedData:
    """Return noise for three clients."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(90, channels, 8, 8, generator=generator), torch.randint(0, 3, (90,), generator=generator)
    return FederatedData((x, y), Iid(3), fractions=(0.6, 0.2, 0.2), batch_size=4)


def fitted(module: ToyModule, channels: int) -> tuple[Any, FederatedLoop]:
    """Train for two rounds."""
    fed = FederatedLoop(cohort=3, executor="sequential")
    trainer = quiet_trainer(2, fed, Fixed())
    trainer.fit(module, datamodule=images(channels))
    return trainer, fed


@pytest.mark.parametrize("flat", [None, Flat()], ids=["flatten", "view"])
@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_get_channels_inside_and_train_the_same(
    channels: int, flat: nn.Module | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Network(channels, flat=flat)
    fitted(module, channels)
    assert module.last == {"training": True, "validation": True}
    monkeypatch.setattr(prepare, "lay_out_images", lambda *arguments: None)
    plain = Network(channels, flat=flat)
    fitted(plain, channels)
    assert plain.last == {"training": False, "validation": False}
    for one, other in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
        assert one.is_contiguous()


@pytest.mark.parametrize(
    "module", [Network(3, flat=ByAddress()), Network(3, nn.InstanceNorm2d(4))], ids=["address", "instance norm"]
)
def test_a_module_that_minds_gets_images_as_they_are(module: Network) -> None:
    _, fed = fitted(module, 3)
    assert fed.session.jobs_done == 6
    assert module.last == {"training": False, "validation": False}


def test_dropout_does_not_stand_against_it() -> None:
    module = Network(3, nn.Dropout(0.5))
    fitted(module, 3)
    assert module.last == {"training": True, "validation": True}


def test_a_test_gets_images_as_they_are() -> None:
    module = Network(1)
    trainer, fed = fitted(module, 1)
    trainer.test(module, datamodule=images(1), verbose=False)
    assert module.last["test"] is False


class Writes(Network):
    """Blanks out numbers of some examples by a view: in validation, or late in training."""

    def __init__(self, when: str) -> None:
        super().__init__(3)
        self.when = when

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self.when == "late" and self.trainer.current_epoch == 1:
            found = self.net[0](batch[0])
            found.view(-1)[:7] = 0.0
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        found = self.net[0](batch[0])
        rows = found.view(found.shape[0], -1)
        if self.when == "validating":
            rows[batch[1] == 0] = 0.0
        self.log("val_loss", found.square().mean())


def test_scores_of_what_is_written_to_a_view_are_the_modules_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fed = fitted(Writes("validating"), 3)
    monkeypatch.setattr(prepare, "lay_out_images", lambda *arguments: None)
    _, plain = fitted(Writes("validating"), 3)
    assert fed.result.history["score"] == pytest.approx(plain.result.history["score"], rel=1e-5)


def test_a_late_write_to_a_copy_is_an_error_and_no_other_result() -> None:
    with pytest.raises(RuntimeError, match="writes to a `view` of what its convolutions return"):
        fitted(Writes("late"), 3)
    assert "view" not in vars(Tensor), "what stood in for views was left behind"


def test_standing_in_for_views_may_be_asked_for_twice() -> None:
    image = torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    first, second = any_view(), any_view()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert image.view(2, -1).shape == (2, 48)
    second.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        image.view(2, -1)
