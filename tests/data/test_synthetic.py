"""Generated federations are seeded, uneven, and can be learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_fedhpo.data import FederatedData, synthetic_classification, synthetic_images
from lightning_fedhpo.data.describe import labels_of, skew


def tensors(data: FederatedData, split: str) -> tuple[Tensor, Tensor]:
    x, y = data.dataset(split).tensors  # type: ignore[attr-defined]
    rows = torch.as_tensor(data.order(split))
    return x[rows], y[rows]


def accuracy(data: FederatedData, model: nn.Module, steps: int = 200) -> float:
    """Train a model on all clients together and return its test accuracy."""
    x, y = tensors(data, "train")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    x, y = tensors(data, "test")
    return float((model(x).argmax(dim=1) == y).float().mean())


def zeroed(features: int, classes: int) -> nn.Module:
    layer = nn.Linear(features, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


@pytest.mark.parametrize("make", [synthetic_classification, synthetic_images])
def test_seeded(make: Any) -> None:
    first, same, other = (make(clients=8, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint() == same.fingerprint() != other.fingerprint()
    assert torch.equal(tensors(first, "train")[0], tensors(same, "train")[0])


@pytest.mark.parametrize("make", [synthetic_classification, synthetic_images])
def test_clients_are_uneven(make: Any) -> None:
    data = make(clients=200, examples=50, min_size=10)
    sizes = sum(data.sizes(split) for split in ("train", "val", "test"))
    assert data.clients == 200
    assert sizes.min() >= 10
    assert sizes.mean() == pytest.approx(50, rel=0.15)
    assert sizes.max() > 2 * np.median(sizes)


@pytest.mark.parametrize(("make", "knob"), [(synthetic_classification, "concept"), (synthetic_images, "skew")])
def test_the_knob_moves_the_label_skew(make: Any, knob: str) -> None:
    def mean_skew(value: float) -> float:
        owners, labels, _ = labels_of(make(clients=50, examples=200, **{knob: value}))
        return float(skew(owners, labels, 50)[0].mean())

    assert mean_skew(0.0) + 0.05 < mean_skew(2.0)


def test_a_logistic_regression_learns_the_first() -> None:
    data = synthetic_classification(clients=50, features=10, classes=5)
    assert accuracy(data, zeroed(10, 5)) > 0.55  # chance is 0.2


def test_clients_that_agree_are_easier() -> None:
    alike, different = (synthetic_classification(clients=50, concept=c, noise=0.1) for c in (0.0, 3.0))
    assert accuracy(alike, zeroed(20, 5)) > accuracy(different, zeroed(20, 5)) + 0.1


def test_images_are_told_apart() -> None:
    data = synthetic_images(clients=50)
    x, y = tensors(data, "train")
    assert x.shape[1:] == (1, 8, 8)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert accuracy(data, zeroed(64, 4)) > 0.6  # chance is 0.25


def test_everything_is_passed_on() -> None:
    data = synthetic_classification(clients=5, fractions=(0.5, 0.5, 0), batch_size=7, eval_batch_size=9)
    assert (data.batch_size, data.eval_batch_size, int(data.sizes("test").sum())) == (7, 9, 0)


@pytest.mark.parametrize("make", [synthetic_classification, synthetic_images])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 0}, "`clients` must be at least 1, got 0"),
        ({"classes": 1}, "`classes` must be at least 2, got 1"),
        ({"examples": 5, "min_size": 6}, "at least `min_size`, got 5 with min_size=6"),
    ],
)
def test_bad_problems(make: Any, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize("make", [synthetic_classification, synthetic_images])
@pytest.mark.parametrize("seed", [-1, 2**63, 0.5, True])
def test_seeds_are_checked(make: Any, seed: Any) -> None:
    with pytest.raises(TypeError if seed in (0.5, True) else ValueError, match=r"`seed` must be .*, got"):
        make(clients=3, seed=seed)


def test_seeds_may_be_numpys() -> None:
    one, other = (synthetic_classification(clients=3, seed=seed) for seed in (4, np.uint8(4)))
    assert one.fingerprint() == other.fingerprint()
