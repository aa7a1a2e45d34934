"""What is recorded is what runs, and what cannot be batched is refused with its reason."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import vmap

from lightning_fedhpo.executors.vectorized.graph.trace import trace
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError


def test_outputs_of_several_tensors_views_and_constants_run_again():
    def function(x):
        values, places = x.sort(dim=1)
        return [values, places, x, torch.arange(3.0)]

    x = torch.tensor([[3.0, 1.0, 2.0]])
    program, other = trace(function, [x.clone()]), torch.tensor([[1.0, 3.0, 2.0]])
    for found, expected in zip(program(other), function(other), strict=True):
        assert torch.equal(found, expected)


def test_a_buffer_is_read_at_every_call():
    buffer = torch.ones(2)
    program = trace(lambda x: [x * buffer], [torch.ones(2)])
    buffer.fill_(3.0)
    assert program(torch.ones(2))[0].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: [x + torch.rand(2)], "draws random numbers by rand"),
        (lambda x: [x * x.sum().item()], "reads a tensor's value in Python"),
        (vmap(lambda x: torch.bincount(x.long(), minlength=3)), "bincount|bin"),
    ],
)
def test_what_cannot_be_batched_is_refused(function, reason):
    with pytest.raises((CannotBatchError, RuntimeError), match=reason):
        trace(function, [torch.ones(2)])


def test_numbers_read_from_constants_are_constants():
    assert trace(lambda x: [x * torch.tensor(3.0).item()], [torch.ones(2)])(torch.ones(2))[0].tolist() == [3.0, 3.0]


def test_weights_that_come_by_another_way_are_refused():
    layer, hidden = nn.Linear(2, 2), []
    hidden.append(layer.weight)
    with torch.no_grad(), pytest.raises(CannotBatchError, match="from somewhere else"):
        trace(lambda weight: [weight @ hidden[0]], [layer.weight.clone()], handed=[layer.weight])
