"""FedTune's global models by joint configuration: which one an arm begins from, how many are kept, and which go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_fedhpo.algorithms import FedAvg
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.tuners.model_buffer import ModelBuffer

START = -1.0


def arm_at(value: float) -> Arm:
    """An arm with a weight, a buffer and a server momentum of a value."""
    arm = Arm(0, FedAvg(momentum=0.5), {}, [torch.full((2,), value)], [torch.tensor([value])])
    arm.optimizer.state[arm.weights[0]]["momentum_buffer"] = torch.full((2,), value)
    return arm


def filled(policy: Any, capacity: int, *keys: tuple[int, ...]) -> tuple[ModelBuffer, Arm]:
    """A buffer that began at START and has been through some keys, whose models are 0, 1, 2, ..."""
    buffer, arm = ModelBuffer(policy, capacity), arm_at(START)
    for number, key in enumerate(keys):
        buffer.fetch(arm, key)
        arm.restore(arm_at(float(number)).model())  # what training has made of it
        buffer.store(arm, key)
    return buffer, arm


def fetched(buffer: ModelBuffer, arm: Arm, key: tuple[int, ...]) -> float:
    """What an arm begins from; weight, buffer and momentum come together."""
    buffer.fetch(arm, key)
    values = {value for tensor in tensors(arm.model()) for value in tensor.tolist()}
    assert len(values) == 1
    return float(values.pop())


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in containers."""
    if isinstance(value, Tensor):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from tensors(one)


def test_joint_keeps_a_model_for_each_and_begins_new_ones_from_the_initial_weights() -> None:
    buffer, arm = filled("joint", 9, (0, 0), (0, 1))
    assert [fetched(buffer, arm, key) for key in [(0, 0), (0, 1), (1, 1), (0, 0)]] == [0, 1, START, 0]


def test_nearest_begins_new_ones_from_the_one_that_the_fewest_clients_differ_in() -> None:
    buffer, arm = filled("nearest", 9, (0, 0, 0), (1, 1, 1), (0, 2, 2))
    assert fetched(buffer, arm, (0, 0, 2)) == 2, "one differs from the first, one from the third: the latest of equals"
    assert fetched(buffer, arm, (0, 0, 1)) == 0
    assert fetched(buffer, arm, (1, 1, 2)) == 1
    assert fetched(buffer, arm, (1, 1, 1)) == 1
    assert fetched(ModelBuffer("nearest", 9), arm_at(START), (0, 0, 0)) == START


@pytest.mark.parametrize("policy", ["joint", "nearest"])
def test_the_least_recently_used_goes(policy: Any) -> None:
    buffer, arm = filled(policy, 2, (0, 0), (5, 5), (0, 0), (7, 7))  # models 0 to 3; (5, 5) was used longest ago
    assert len(buffer.state_dict()["models"]) == 2
    other = START if policy == "joint" else 3  # both kept ones differ in two clients: the latest
    assert [fetched(buffer, arm, key) for key in [(0, 0), (7, 7), (5, 5)]] == [2, 3, other]
