import pytest
import torch
from torch import nn

from lightning_fedhpo import FederatedData, FederatedLoop, Iid, models
from lightning_fedhpo.models import CNN, LSTM, MLP, CifarCNN, LeNet, Linear, ResNet
from lightning_fedhpo.testing import quiet_trainer

SMALL = {
    Linear: {"features": 6, "classes": 3},
    MLP: {"features": 6, "classes": 3, "hidden": 4},
    LeNet: {"channels": 3, "size": 12, "classes": 3},
    CNN: {"channels": 1, "size": 8, "classes": 3, "hidden": 5},
    CifarCNN: {"channels": 3, "size": 6, "classes": 3},
    ResNet: {"channels": 3, "size": 8, "classes": 3, "width": 4, "groups": 2},
    LSTM: {"vocabulary": 7, "embedding": 3, "hidden": 5},
}
SHAPES = {Linear: (6,), MLP: (6,), LeNet: (3, 12, 12), CNN: (1, 8, 8), CifarCNN: (3, 6, 6), ResNet: (3, 8, 8)}
KINDS = list(SMALL)


def batch(kind: type, examples: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    if kind is LSTM:
        text = torch.randint(7, (examples, 9), generator=generator)
        return text[:, :-1], text[:, -1]
    return torch.randn(examples, *SHAPES[kind], generator=generator), torch.arange(examples) % 3


def test_every_exported_model_is_tested():
    assert {getattr(models, name) for name in models.__all__} - {models.Classifier} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_federated_run_scores_and_its_checkpoint_brings_the_model_back(kind: type, tmp_path):
    fed = FederatedLoop(cohort=2, monitor="val_error", score_before=True, executor="sequential")
    data = FederatedData(batch(kind, 40), Iid(4), fractions=(0.5, 0.25, 0.25))
    trainer, model = quiet_trainer(1, fed), kind(**SMALL[kind], lr=0.3, momentum=0.5, weight_decay=0.01)
    trainer.fit(model, datamodule=data)
    assert {"train_loss", "val/val_loss", "val/val_acc", "val/val_error_personalized"} <= set(trainer.callback_metrics)
    tested = fed.evaluate(trainer, model, data)["global"]
    assert set(tested) == {"test_loss", "test_acc", "test_error"}
    assert tested["test_acc"] + tested["test_error"] == pytest.approx(1.0)
    optimizer = model.configure_optimizers()
    assert type(optimizer) is torch.optim.SGD
    assert [optimizer.defaults[name] for name in ("lr", "momentum", "weight_decay")] == [0.3, 0.5, 0.01]
    adam = kind(**SMALL[kind], lr=0.3, weight_decay=0.01, optimizer="adam").configure_optimizers()
    assert type(adam) is torch.optim.Adam
    assert [adam.defaults[name] for name in ("lr", "weight_decay")] == [0.3, 0.01]
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    back = kind.load_from_checkpoint(tmp_path / "model.ckpt")
    x, _ = batch(kind)
    assert back.lr == 0.3 and torch.equal(back.eval()(x), model.eval()(x))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not Linear])
def test_dropout_reaches_its_layers_and_changes_the_output(kind: type):
    model = kind(**SMALL[kind], dropout=0.5)
    rates = [layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)]
    assert rates and set(rates) == {0.5}
    x, _ = batch(kind)
    assert not torch.equal(model.train()(x), model.eval()(x))


def test_sizes_of_the_papers():
    """Those of the other models are in their docstrings."""

    def size(model: nn.Module) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    # Of 3x32x32 only the first layer has more: 25 weights for each of two more channels.
    assert size(LeNet(channels=3, size=32)) == size(LeNet()) + 2 * 25 * 6
    # Whole images leave 8x8 pixels instead of 6x6 to the first linear layer.
    assert size(CifarCNN()) - size(CifarCNN(size=24)) == (8 * 8 - 6 * 6) * 64 * 384
    # The figures of torchvision's networks of 1000 classes, whichever norm.
    for norm in ("group", "batch"):
        assert size(ResNet(size=224, classes=1000, depth=50, norm=norm)) == 25_557_032
    assert size(ResNet(size=224)) - size(ResNet(size=64)) == 64 * 3 * (7 * 7 - 3 * 3)
    first, second = 4 * 256 * (8 + 256 + 2), 4 * 256 * (256 + 256 + 2)
    assert size(LSTM()) == 80 * 8 + first + second + 257 * 80


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (1, 12), (2, 17)])
def test_images_of_many_sizes(channels: int, size: int):
    for kind in (LeNet, CNN, CifarCNN):
        assert kind(channels, size, 5)(torch.zeros(2, channels, size, size)).shape == (2, 5)
    assert MLP()(torch.zeros(2, 1, 28, 28)).shape == Linear()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("kind", [CNN, LeNet, CifarCNN])
def test_widths_are_arguments(kind: type):
    hidden = 5 if kind is CNN else [7, 5, 3]
    layers = list(kind(1, 28, 10, maps=[2, 4], hidden=hidden).modules())
    assert [one.out_channels for one in layers if isinstance(one, nn.Conv2d)] == [2, 4]
    linear = [one.out_features for one in layers if isinstance(one, nn.Linear)]
    assert linear == ([5] if kind is CNN else [7, 5, 3]) + [10]


@pytest.mark.parametrize(("size", "stem", "left"), [(16, None, 2), (65, None, 3), (16, "large", 1), (65, "small", 9)])
@pytest.mark.parametrize("depth", [18, 50])
def test_residual_networks_halve_images(depth: int, size: int, stem: str | None, left: int):
    """Three stages halve, and the large stem twice: what is left before the mean over pixels."""
    model = ResNet(1, size, 5, depth=depth, width=4, groups=2, stem=stem)
    wide = [one for one in model.modules() if isinstance(one, nn.Conv2d) and one.kernel_size != (1, 1)]
    assert len(wide) == 17  # the stem, and 16 in blocks: 8 blocks of 2, or 16 of 1
    maps = model.net[:-4](torch.zeros(2, 1, size, size))
    assert maps.shape == (2, 32 * (4 if depth == 50 else 1), left, left)
    assert model(torch.zeros(2, 1, size, size)).shape == (2, 5)


def test_group_norm_scores_examples_one_by_one_and_batch_norm_does_not():
    x = batch(ResNet)[0]
    for norm, alike in (("group", True), ("batch", False)):
        model = ResNet(**SMALL[ResNet], norm=norm)
        assert torch.allclose(model(x)[:2], model(x[:2]), atol=1e-5) is alike


def test_a_label_for_every_character():
    text = batch(LSTM)[0]
    model = LSTM(7, embedding=3, hidden=5, every=True)
    logits = model(text[:, :-1])
    assert logits.shape == (12, 7, 7)
    # Reading fewer characters gives the same logits for those read: nothing looks ahead.
    assert torch.allclose(model(text[:, :4])[..., -1], logits[..., 3])
    with pytest.warns(UserWarning, match="self.trainer. reference is not registered"):
        loss = model.training_step((text[:, :-1], text[:, 1:]), 0)
    by_hand = -logits.log_softmax(1).gather(1, text[:, 1:, None].transpose(1, 2)).mean()
    assert torch.allclose(loss, by_hand)


def test_a_wrong_shape_is_explained():
    with pytest.raises(ValueError, match="takes 6 numbers an example here, got 20, from a batch of shape .2, 4, 5."):
        Linear(features=6)(torch.zeros(2, 4, 5))
    with pytest.raises(ValueError, match="set its `size`"):
        CNN(size=28)(torch.zeros(2, 1, 20, 20))


@pytest.mark.parametrize(
    ("kind", "options", "rule"),
    [
        (LeNet, {"size": 11}, "`size`.*at least 12, got 11"),
        (CNN, {"maps": [32]}, r"`maps` must be 2 number\(s\), got \[32\]"),
        (LeNet, {"hidden": [0]}, "`hidden`, the widths of layers, must be at least 1, got 0"),
        (ResNet, {"width": 48}, "multiple of `groups`, got 48 and 32"),
        (ResNet, {"norm": "layer"}, "`norm` must be one of 'group', 'batch', got 'layer'"),
        (MLP, {"dropout": 1.5}, r"`dropout` must be in \[0, 1\], got 1.5"),
    ],
)
def test_wrong_arguments(kind: type, options: dict[str, float], rule: str):
    with pytest.raises(ValueError, match=rule):
        kind(**options)
