"""The fused step of SGD equals torch's plain one up to rounding, and leaves everything else to torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from lightning_fedhpo.client.fast_sgd import step_of

FORMS: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.03},
    {"momentum": 0.9, "weight_decay": 0.03},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.03},
]


def trained(options: dict[str, Any], by_hand: bool, sparse: bool = False) -> list[torch.Tensor]:
    """Parameters and momentum buffers after steps in two groups; one layer has gradients in every second step only."""
    torch.manual_seed(0)
    table, first, rare = nn.Embedding(5, 7, sparse=sparse), nn.Linear(7, 32), nn.Linear(32, 3)
    net = nn.ModuleList([table, first, rare])
    groups = [{"params": [*table.parameters()]}, {"params": [*first.parameters(), *rare.parameters()], "lr": 0.02}]
    optimizer = SGD(groups, **{"lr": 0.1} | options)
    step = step_of(optimizer) if by_hand else optimizer.step
    for number in range(9):
        optimizer.zero_grad()
        hidden = first(table(torch.tensor([number % 5, (number + 2) % 5]))).relu()
        (rare(hidden) if number % 2 else hidden).square().mean().backward()
        if number == 4:
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.param_groups[0]["lr"] = 0.2
        step()
    states = [optimizer.state[parameter].get("momentum_buffer") for parameter in net.parameters()]
    return [parameter.detach() for parameter in net.parameters()] + [s.to_dense() for s in states if s is not None]


@pytest.mark.parametrize(("options", "sparse"), [*((form, False) for form in FORMS), ({"momentum": 0.9}, True)])
def test_the_fused_step_is_torchs_up_to_rounding(options: dict[str, Any], sparse: bool) -> None:
    ours, theirs = trained(options, True, sparse), trained(options, False, sparse)
    assert len(ours) == len(theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_an_option_or_a_hook_that_comes_later_is_heeded() -> None:
    weight, called = torch.ones(1, requires_grad=True), []
    optimizer = SGD([weight], lr=0.25)
    step = step_of(optimizer)
    assert step != optimizer.step
    weight.grad = torch.ones(1)
    step()
    optimizer.param_groups[0]["maximize"] = True
    optimizer.register_step_pre_hook(lambda *arguments: called.append(1))
    step()
    assert (weight.item(), called) == (1.0, [1])


def scheduled(optimizer: SGD) -> SGD:
    """Add a schedule, which counts the optimizer's steps."""
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return optimizer


@pytest.mark.parametrize(
    "make",
    [
        lambda w: torch.optim.Adam([w]),
        lambda w: SGD([w], lr=0.1, maximize=True),
        lambda w: SGD([w], lr=0.1, fused=True),
        lambda w: SGD([w], lr=torch.tensor([0.1])),
        lambda w: type("Mine", (SGD,), {})([w], lr=0.1),
        lambda w: scheduled(SGD([w], lr=0.1)),
    ],
)
def test_what_is_not_plain_is_left_to_torch(make: Any) -> None:
    optimizer = make(torch.ones(1, requires_grad=True))
    assert step_of(optimizer) == optimizer.step
