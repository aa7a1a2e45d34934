"""FedTune's mathematics against torch: automatic differentiation, its Adam, and draws that are counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_fedhpo.tuners import fedtune_policy as policy

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(5, 4)) * 2
SLOPES = DRAW.normal(size=(5, 4))


def test_the_policy_gradient_is_that_of_the_log_probability() -> None:
    """Equations 10 and 11: dL/d1_i times the gradient of log p(Z_i)."""
    chosen, slopes = np.array([0, 3, 1, 1, 2]), SLOPES[:, 0]
    logits = torch.tensor(LOGITS, requires_grad=True)
    log_p = torch.log_softmax(logits, 1)[torch.arange(5), torch.tensor(chosen)]
    (expected,) = torch.autograd.grad((log_p * torch.tensor(slopes)).sum(), logits)
    assert policy.policy_gradient(LOGITS, chosen, slopes) == pytest.approx(expected.numpy(), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_the_relaxed_sample_and_its_gradient(temperature: float) -> None:
    """Equations 6 and 7: the chain through softmax((log pi + G) / temperature), down to the logits."""
    fractions = DRAW.random(LOGITS.shape)
    logits = torch.tensor(LOGITS, requires_grad=True)
    gumbel = -torch.log(-torch.log(torch.tensor(fractions)))
    sample = torch.softmax((torch.log_softmax(logits, 1) + gumbel) / temperature, 1)
    (expected,) = torch.autograd.grad((sample * torch.tensor(SLOPES)).sum(), logits)
    ours = policy.relaxed(LOGITS, fractions, temperature)
    assert ours == pytest.approx(sample.detach().numpy(), rel=1e-9, abs=1e-12)
    gradient = policy.relaxed_gradient(LOGITS, ours, SLOPES, temperature)
    assert gradient == pytest.approx(expected.numpy(), rel=1e-9, abs=1e-12)


def test_adam_is_that_of_torch() -> None:
    weight = torch.zeros(5, 4, dtype=torch.float64, requires_grad=True)
    theirs = torch.optim.Adam([weight], lr=0.1, betas=(0.5, 0.999), eps=1e-8)
    ours, first, second = np.zeros((5, 4)), np.zeros((5, 4)), np.zeros((5, 4))
    for step in range(1, 30):
        gradient = DRAW.normal(size=(5, 4))
        weight.grad = torch.tensor(gradient)
        theirs.step()
        direction, first, second = policy.adam_step(gradient, first, second, step)
        ours = ours - 0.1 * direction
    assert ours == pytest.approx(weight.detach().numpy(), rel=1e-9)


def test_the_edges_of_numbers() -> None:
    logits = np.log(np.full((1, 10), 0.1))
    assert policy.softmax(logits).cumsum()[-1] < 1.0, "or the case is not there"
    assert policy.drawn(logits, np.array([np.nextafter(1, 0)])) == [9]
    found = policy.softmax(np.array([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]]))
    assert found == pytest.approx(np.array([[1, 0, 0], [1 / 3] * 3]))
    for far in (np.zeros((1, 3)), np.array([[0.0, -900.0, 900.0]])):
        sample = policy.relaxed(far, np.array([[0.0, np.nextafter(1, 0), 0.5]]), 0.1)
        assert np.isfinite(sample).all() and sample.sum() == pytest.approx(1.0)
