"""Label smoothing that is tuned, which torch takes as a number only; slopes are compared in whole runs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.graph.vmap_shims import smoothed


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_tuned_smoothing_is_that_of_torch(smoothing: float, reduction: str):
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 3, 1, -100, 2])
    gradients = []
    for loss, value in ((functional.cross_entropy, smoothing), (smoothed, torch.tensor(smoothing))):
        given = logits.clone().requires_grad_()
        found = loss(given, labels, label_smoothing=value, reduction=reduction)
        found.sum().backward()
        gradients.append((found.detach(), given.grad))
    torch.testing.assert_close(gradients[1], gradients[0])
