import pytest
import torch
from torch import nn
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.graph.vmap_shims import leaky, smoothed


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


def test_no_smoothing_leaves_out_classes_that_cannot_be():
    logits = torch.tensor([[0.5, 2.0, -torch.inf]], requires_grad=True)
    labels = torch.tensor([0])
    loss = smoothed(logits, labels, label_smoothing=torch.tensor(0.0))
    loss.backward()
    (expected,) = torch.autograd.grad(functional.cross_entropy(logits, labels), logits)
    torch.testing.assert_close(loss.detach(), functional.cross_entropy(logits, labels).detach())
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize(("shape", "slopes"), [((3, 2), 1), ((3, 2), 2), ((3, 2, 4), 1), ((3, 2, 4), 2), ((2,), 1)])
def test_slopes_are_those_of_torch(shape: tuple[int, ...], slopes: int):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    weight = nn.Parameter(torch.tensor([0.25, -0.5])[:slopes])
    torch.testing.assert_close(leaky(values, weight), torch.prelu(values, weight))
