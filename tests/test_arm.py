"""An arm's sums: what its clients send becomes one model, with all the digits that it has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lightning_fedhpo import FedAvg
from lightning_fedhpo.arm import Arm
from lightning_fedhpo.types import ClientResult, Job


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
