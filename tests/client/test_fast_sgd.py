"""The hand-made step of SGD equals torch's, to the last bit, in every form it takes part in."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from lightning_fedhpo.client.fast_sgd import plain_sgd

FORMS = [
    {"lr": lr, "momentum": momentum, "weight_decay": decay, "dampening": dampening, "nesterov": nesterov}
    for lr, momentum, decay, (dampening, nesterov) in itertools.product(
        (0.1, 1e-4), (0.0, 0.9), (0.0, 0.03), ((0.0, False), (0.3, False), (0.0, True))
    )
    if not nesterov or momentum
]


class Net(nn.Module):
    """Layers of which one takes part in every second step only."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.first, self.last, self.rare = nn.Linear(7, 32), nn.Linear(32, 3), nn.Linear(32, 3)
        self.table = nn.Embedding(5, 7, sparse=sparse)

    def loss(self, number: int) -> torch.Tensor:
        """Some loss."""
        hidden = self.first(self.table(torch.tensor([number % 5, (number + 2) % 5]))).relu()
        out = self.last(hidden) + (self.rare(hidden) if number % 2 else 0.0)
        return out.square().mean()


def trained(options: dict[str, Any], by_hand: bool, groups: bool = False, sparse: bool = False) -> list[torch.Tensor]:
    """All parameters and momentum buffers after some steps."""
    torch.manual_seed(0)
    net = Net(sparse)
    parts: Any = list(net.parameters())
    if groups:
        parts = [{"params": parts[:3]}, {"params": parts[3:], "lr": 0.02, "weight_decay": 0.0}]
    optimizer = SGD(parts, **options)
    step = plain_sgd(optimizer) if by_hand else optimizer.step
    assert step is not None
    for number in range(9):
        for parameter in net.parameters():
            parameter.grad = None
        net.loss(number).backward()  # type: ignore[no-untyped-call]
        step()
    states = [optimizer.state[p].get("momentum_buffer") for p in net.parameters()]
    return [p.detach() for p in net.parameters()] + [s.to_dense() for s in states if s is not None]


def same(ours: list[torch.Tensor], torchs: list[torch.Tensor]) -> bool:
    """Whether two trainings agree to the last bit."""
    return len(ours) == len(torchs) and all(torch.equal(one, two) for one, two in zip(ours, torchs, strict=True))


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_bit_for_bit(options: dict[str, Any], groups: bool) -> None:
    assert same(trained(options, True, groups), trained(options, False, groups))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sparse_gradients_are_torchs(momentum: float) -> None:
    options = {"lr": 0.1, "momentum": momentum}
    assert same(trained(options, True, sparse=True), trained(options, False, sparse=True))


def test_a_changed_learning_rate_is_seen() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = SGD([weight], lr=1.0)
    step = plain_sgd(optimizer)
    assert step is not None
    optimizer.param_groups[0]["lr"] = 0.25
    weight.grad = torch.ones(1)
    step()
    assert weight.item() == 0.75


@pytest.mark.parametrize("change", ["maximize", "hook"])
def test_what_stops_to_be_plain_is_left_to_torch_from_then_on(change: str) -> None:
    weight, called = torch.ones(1, requires_grad=True), []
    optimizer = SGD([weight], lr=0.25)
    step = plain_sgd(optimizer)
    assert step is not None
    weight.grad = torch.ones(1)
    step()
    if change == "maximize":
        optimizer.param_groups[0]["maximize"] = True
    else:
        optimizer.register_step_pre_hook(lambda *arguments: called.append(1))
    step()
    assert weight.item() == (1.0 if change == "maximize" else 0.5)
    assert bool(called) == (change == "hook")


@pytest.mark.parametrize(
    "make",
    [
        lambda w: torch.optim.Adam([w]),
        lambda w: SGD([w], lr=0.1, maximize=True),
        lambda w: SGD([w], lr=0.1, foreach=True),
        lambda w: SGD([w], lr=0.1, fused=True),
        lambda w: type("Mine", (SGD,), {})([w], lr=0.1),
        lambda w: _scheduled(SGD([w], lr=0.1)),
        lambda w: _hooked(SGD([w], lr=0.1)),
    ],
)
def test_what_is_not_plain_is_left_to_torch(make: Any) -> None:
    assert plain_sgd(make(torch.ones(1, requires_grad=True))) is None


def _scheduled(optimizer: SGD) -> SGD:
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return optimizer


def _hooked(optimizer: SGD) -> SGD:
    optimizer.register_step_post_hook(lambda *arguments: None)
    return optimizer


def test_gradients_and_buffers_in_another_order() -> None:
    ends = []
    for by_hand in (False, True):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(64, 32))
        optimizer = SGD([weight], lr=0.1, momentum=0.9)
        step = plain_sgd(optimizer) if by_hand else optimizer.step
        assert step is not None
        for number in range(4):
            weight.grad = torch.randn(32, 64).T if number == 0 else torch.randn(64, 32)
            step()
        ends.append([weight.detach(), optimizer.state[weight]["momentum_buffer"]])
    assert same(ends[1], ends[0])


def test_a_state_that_is_loaded_is_stepped_on() -> None:
    ends = []
    for by_hand in (True, False):
        torch.manual_seed(0)
        net = nn.Linear(16, 16)
        optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
        step = plain_sgd(optimizer) if by_hand else optimizer.step
        assert step is not None
        for number in range(4):
            if number == 2:
                optimizer.load_state_dict(optimizer.state_dict())
                optimizer.param_groups[0]["lr"] = 0.2
            optimizer.zero_grad()
            net(torch.ones(2, 16)).square().sum().backward()
            step()
        ends.append([parameter.detach() for parameter in net.parameters()])
    assert same(*ends)


def test_a_learning_rate_in_a_vector_is_left_to_torch() -> None:
    weight = torch.ones(3, requires_grad=True)
    assert plain_sgd(SGD([weight], lr=torch.tensor([0.1]))) is None
    assert plain_sgd(SGD([weight], lr=torch.tensor(0.1))) is not None
