"""Generated federations are seeded, uneven, and can be learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_fedhpo import seeding
from lightning_fedhpo.data import FederatedData, synthetic_alpha_beta, synthetic_classification, synthetic_images
from lightning_fedhpo.data.describe import labels_of, skew


def tensors(data: FederatedData, split: str) -> tuple[Tensor, Tensor]:
    x, y = data.dataset(split).tensors  # type: ignore[attr-defined]
    rows = torch.as_tensor(data.order(split))
    return x[rows], y[rows]


def accuracy(data: FederatedData) -> float:
    """Return the test accuracy of a linear model that fits all clients together by least squares."""
    (x, y), (x_test, y_test) = (tensors(data, split) for split in ("train", "test"))
    x, x_test = (torch.cat([one.flatten(1), torch.ones(len(one), 1)], dim=1) for one in (x, x_test))
    weights = torch.linalg.lstsq(x, nn.functional.one_hot(y).float()).solution
    return float(((x_test @ weights).argmax(dim=1) == y_test).float().mean())


@pytest.mark.parametrize("make", [synthetic_classification, synthetic_images])
def test_seeded_and_uneven(make: Any) -> None:
    first, same, other = (make(clients=8, seed=seed) for seed in (4, np.uint8(4), 1))
    assert first.fingerprint() == same.fingerprint() != other.fingerprint()
    data = make(clients=200, examples=50, min_size=10, fractions=(0.5, 0.5, 0), batch_size=7, eval_batch_size=9)
    assert (data.clients, data.batch_size, data.eval_batch_size) == (200, 7, 9)
    sizes = sum(data.sizes(split) for split in ("train", "val"))
    assert sizes.min() >= 10 and sizes.mean() == pytest.approx(50, rel=0.15)
    assert sizes.max() > 2 * np.median(sizes)


@pytest.mark.parametrize(("make", "knob"), [(synthetic_classification, "concept"), (synthetic_images, "skew")])
def test_the_knob_moves_the_label_skew(make: Any, knob: str) -> None:
    def mean_skew(value: float) -> float:
        found = labels_of(make(clients=50, examples=200, **{knob: value}))
        assert found is not None
        return float(skew(found[0], found[1], 50)[0].mean())

    assert mean_skew(0.0) + 0.05 < mean_skew(2.0)


def test_a_linear_model_learns_them_and_better_where_clients_agree() -> None:
    alike, different = (synthetic_classification(clients=50, concept=c, noise=0.1) for c in (0.0, 3.0))
    assert accuracy(alike) > accuracy(different) + 0.1 > 0.3  # chance is 0.2
    data = synthetic_images(clients=50)
    x, y = tensors(data, "train")
    assert (x.shape[1:], x.dtype, y.dtype) == ((1, 8, 8), torch.float32, torch.int64)
    assert accuracy(data) > 0.6  # chance is 0.25


@pytest.mark.parametrize("make", [synthetic_classification, synthetic_images])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"examples": 5, "min_size": 6}, "at least `min_size`, got 5 with min_size=6"),
    ],
)
def test_bad_problems(make: Any, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_synthetic_alpha_beta_is_the_papers_formula():
    """Labels and inputs again, number by number, from draws in the order of the description."""
    alpha, beta, clients, features, classes = 0.5, 2.0, 3, 4, 3
    sizes = {"size_mean": 1.0, "size_spread": 0.5, "min_size": 5}
    data = synthetic_alpha_beta(alpha, beta, clients, features, classes, seed=3, fractions=(1, 0, 0), **sizes)
    rng = seeding.rng(3, seeding.SYNTHETIC)
    counts = [5 + int(np.exp(1.0 + 0.5 * z)) for z in rng.standard_normal(clients)]
    u = [alpha**0.5 * z for z in rng.standard_normal(clients)]
    b = [beta**0.5 * z for z in rng.standard_normal(clients)]
    x, y = data.columns().tensors
    row = 0
    for client in range(clients):
        weights = rng.standard_normal((features, classes)) + u[client]
        offsets = rng.standard_normal(classes) + u[client]
        v = rng.standard_normal(features) + b[client]
        noise = rng.standard_normal((counts[client], features))
        assert len(data.indices(client)) == counts[client]
        for example in noise:
            numbers = [v[j] + example[j] * (j + 1) ** (-1.2 / 2) for j in range(features)]
            scores = [sum(numbers[j] * weights[j, k] for j in range(features)) + offsets[k] for k in range(classes)]
            assert x[row].tolist() == pytest.approx(numbers, rel=1e-5) and y[row] == np.argmax(scores)
            row += 1
    assert row == len(x)
