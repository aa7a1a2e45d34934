"""An arm's sums: what its clients send becomes one model, with all the digits that it has."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch import Tensor

from lightning_fedhpo import FedAvg, Scaffold
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.types import ClientResult, Job, StackedModel


def sent(weights: list[Tensor], buffers: list[Tensor]) -> ClientResult:
    return ClientResult(Job(0, 0, 0, {}), weights, buffers, (), {}, 1, 1, 1, 1, 1, None, None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64])
def test_clients_are_summed_up_in_single_precision_at_least(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    start, mean = torch.zeros(50, dtype=dtype), torch.ones(50, dtype=dtype)
    arm = Arm(0, FedAvg(), {}, [start], [mean])
    clients = [0.1 * torch.randn(50, generator=draw, dtype=torch.float64) + 1 for _ in range(300)]
    counts = [float(10 + number % 7) for number in range(300)]
    for client, count in zip(clients, counts, strict=True):
        arm.add(sent([client.to(dtype)], [client.to(dtype)]), count)
    FedAvg().aggregate(arm)
    wide = torch.promote_types(dtype, torch.float64)
    pairs = zip(clients, counts, strict=True)
    expected = sum(count * client.to(dtype).to(wide) for client, count in pairs) / sum(counts)
    rounding = torch.finfo(dtype).eps  # of the result itself, which is near one
    for found in (arm.weights[0].detach(), arm.buffers[0]):
        assert found.dtype == dtype
        assert float((found.to(wide) - expected).abs().max()) < max(rounding, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.complex64])
def test_rows_of_a_stack_are_summed_up_together(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    start = [torch.randn(3, 4, 2, 2, dtype=dtype, generator=draw).to(memory_format=torch.channels_last)]
    start.append(torch.randn((), dtype=dtype, generator=draw))
    arms = [Arm(number, FedAvg(), {}, start) for number in range(2)]
    stacks = [[torch.randn(40, *one.shape, dtype=dtype, generator=draw) for one in start] for _ in range(2)]
    models = [StackedModel(stack, row) for stack in stacks for row in range(40) if row not in (5, 6)]
    counts = [float(10 + number % 7) for number in range(len(models))]
    results = [sent(model, []) for model in models]
    results[30] = sent([one.clone() for one in models[30]], [])  # one that ran alone
    pairs = list(zip(counts, models, strict=True))
    expected = [
        sum(count * model[place].to(torch.complex128) for count, model in pairs) / sum(counts) for place in range(2)
    ]
    models[30].clear()
    waiting = [weakref.ref(stack[0]) for stack in stacks]
    for result, count in zip(results, counts, strict=True):
        for arm in arms:
            arm.add(result, count)
        result.release()
    stacks.clear()
    assert [stack() is None for stack in waiting] == [True, False]  # of one stack at a time there is memory
    for arm in arms:
        FedAvg().aggregate(arm)
        for found, right in zip(arm.weights, expected, strict=True):
            assert found.dtype == dtype
            assert float((found.detach() - right).abs().max()) < max(2 * torch.finfo(dtype).eps, 2e-6)
    assert waiting[1]() is None


def test_a_pseudo_gradient_is_read_without_a_trace() -> None:
    arm = Arm(0, FedAvg(), {}, [torch.zeros(2)])
    for value, count in ((1.0, 1.0), (4.0, 2.0)):
        arm.add(sent([torch.full((2,), value)], []), count)
    for _ in range(3):
        assert [tensor.tolist() for tensor in arm.pseudo_gradient() or ()] == [[-3.0, -3.0]]  # -(1 + 2 * 4) / 3
    FedAvg().aggregate(arm)
    assert arm.weights[0].tolist() == [3.0, 3.0]


def test_what_clients_keep_is_named_by_the_algorithm() -> None:
    with pytest.raises(KeyError, match=r"clients keep 'momentum', which the algorithm does not name"):
        Arm(0, Scaffold(), {}, [torch.zeros(2)]).keep(0, "momentum", [torch.ones(2)])


def trained(arm: Arm, algorithm: FedAvg, value: float) -> None:
    """Aggregate one client whose weights are all one value."""
    arm.add(sent([torch.full_like(weight, value).detach() for weight in arm.weights], []), 1.0)
    algorithm.aggregate(arm)


def test_an_arm_becomes_a_copy_that_shares_nothing() -> None:
    algorithm = Scaffold(momentum=0.9)
    algorithm.sizes = np.ones(4)
    good, bad = (Arm(index, algorithm, {}, [torch.zeros(3)], client={"lr": 0.1}) for index in (0, 1))
    for arm, values in ((good, (1.0, 3.0)), (bad, (5.0, 7.0))):
        for value in values:
            arm.keep(0, "control", [torch.full((3,), value)])
            trained(arm, algorithm, value)
    good.scores, bad.scores = [0.5, 0.25], [2.0, float("nan")]
    bad.become(good, {**good.server, "lr": 0.5}, {"lr": 0.2})
    kept = [bad.weights, bad.server_state["control"], bad.client_state[0]["control"]]
    theirs = [good.weights, good.server_state["control"], good.client_state[0]["control"]]
    buffers = [arm.optimizer.state[arm.weights[0]]["momentum_buffer"] for arm in (bad, good)]
    pairs = zip([t for ts in kept for t in ts], [t for ts in theirs for t in ts], strict=True)
    for one, other in (*pairs, tuple(buffers)):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()
    assert (bad.scores, bad.client, bad.server["lr"], bad.index) == (good.scores, {"lr": 0.2}, 0.5, 1)
    assert bad.scores is not good.scores
    before = good.weights[0].clone()
    trained(bad, algorithm, 9.0)  # the copy goes on by itself
    assert torch.equal(good.weights[0], before)
    assert torch.equal(good.optimizer.state[good.weights[0]]["momentum_buffer"], buffers[1])


def test_states_are_pending_until_the_round_is_aggregated() -> None:
    algorithm = Scaffold()
    algorithm.sizes = np.ones(4)
    arm = Arm(0, algorithm, {}, [torch.zeros(2)])
    assert arm.nbytes == 2 * 4 + 2 * 4  # the model, and the control variates that travel with it
    arm.keep(3, "control", [torch.ones(2)])
    arm.add_state("control", [torch.ones(2)])
    assert not arm.client_state
    assert arm.state_dict()["server_state"]["control"][0].tolist() == [0.0, 0.0]
    trained(arm, algorithm, 1.0)
    assert arm.client_state[3]["control"][0].tolist() == [1.0, 1.0]
    assert arm.server_state["control"][0].tolist() == [0.25, 0.25]  # a quarter: one of four clients took part
    arm.add_state("control", [torch.ones(2)])
    arm.discard()
    trained(arm, algorithm, 1.0)
    assert arm.server_state["control"][0].tolist() == [0.25, 0.25]
