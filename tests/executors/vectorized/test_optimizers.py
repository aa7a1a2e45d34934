"""Batched optimizer steps against torch's own optimizers, one client at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import SGD, Adam, AdamW

from lightning_fedhpo.executors.vectorized.optimizers import BatchPosition, read_options, update_of

OPTIMIZERS: dict[str, Any] = {
    "plain": (SGD, [{"lr": 0.1}, {"lr": 0.5}]),
    "momentum": (SGD, [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.2, "momentum": 0.0}]),
    "nesterov": (SGD, [{"lr": 0.1, "momentum": 0.9, "nesterov": True}, {"lr": 0.3, "momentum": 0.5, "nesterov": True}]),
    "decay": (SGD, [{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.3}, {"lr": 0.1, "weight_decay": 0.0}]),
    "adam": (Adam, [{"lr": 0.1, "betas": (0.5, 0.9)}, {"lr": 0.01, "weight_decay": 0.2, "eps": 1e-3}]),
    "adam with a long memory": (Adam, [{"lr": 0.3, "betas": (0.9, 0.9999)}, {"lr": 0.3, "betas": (0.99, 0.99999)}]),
    "adamw": (AdamW, [{"lr": 0.1, "weight_decay": 0.3}, {"lr": 0.01, "betas": (0.8, 0.95)}]),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("tensors", [True, False], ids=["a value each", "one value"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_batched_step_is_torchs_own(name: str, tensors: bool, pieces: int) -> None:
    """A batch's gradient comes in pieces, which add up."""
    kind, options = OPTIMIZERS[name]
    options = options if tensors else options[:1] * 2
    draw = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(2, 3, 2, generator=draw), torch.randn(5, 2, 3, 2, generator=draw)
    expected = []
    for client in range(2):
        weight = start[client].clone().requires_grad_()
        optimizer = kind([weight], **options[client])
        for step in range(5):
            weight.grad = gradients[step, client].clone()
            optimizer.step()
        expected.append(weight.detach())
    optimizers = [kind([torch.zeros(1, requires_grad=True)], **one) for one in options]
    update = update_of(optimizers[0])
    assert not isinstance(update, str)
    rows = np.array([read_options(optimizer.param_groups[0], update.options) for optimizer in optimizers])
    ticks = np.arange(5 * pieces)[:, None].repeat(2, axis=1)
    part = ticks % pieces
    at = BatchPosition(ticks // pieces + 1, *(() if pieces == 1 else (part == 0, part == pieces - 1)))
    each = np.ones_like(ticks, dtype=float)
    known = {"lr"} if not tensors else set(update.options)
    values = {o: rows[:, i] * each if o in known else float(rows[0, i]) for i, o in enumerate(update.options)}
    weight = start.clone()
    state = [torch.zeros_like(weight) for _ in range(update.state[at.whole])]
    found = update.coefficients(values, at)
    for tick in range(len(ticks)):
        numbers = {
            name: torch.tensor(one[tick], dtype=torch.float32) if isinstance(one, np.ndarray) else one
            for name, one in found.items()
        }
        shares = torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.9, 0.1]])[:, tick % pieces] if pieces > 1 else torch.ones(2)
        update.apply(weight, gradients[tick // pieces] * shares[:, None, None], state, numbers)
    torch.testing.assert_close(weight, torch.stack(expected), rtol=1e-5, atol=1e-6)


def hooked(optimizer: Any, hook: str) -> Any:
    getattr(optimizer, hook)(lambda *_: None)
    return optimizer


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda w: SGD([w], lr=0.1, momentum=0.9, dampening=0.5), "dampened"),
        (lambda w: Adam([w], amsgrad=True), "amsgrad"),
        (lambda w: hooked(SGD([w]), "register_step_pre_hook"), "SGD is wrapped, or has hooks"),
    ],
)
def test_what_has_no_batched_step_says_so(make: Any, reason: str) -> None:
    found = update_of(make(torch.zeros(2, requires_grad=True)))
    assert isinstance(found, str)
    assert reason in found
