"""What a worker of Flower's does for a client, in a module that workers can import."""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord
from torch import nn
from torch.nn import functional

from benchmarks.workloads import LR, MOMENTUM, WORKLOADS, Clients


@cache
def made(name: str) -> tuple[nn.Module, torch.optim.Optimizer, Clients]:
    """Return a worker's network, optimizer and data, which it makes once."""
    torch.set_num_threads(1)
    net = WORKLOADS[name].seeded()
    return net, torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, fused=True), WORKLOADS[name].clients()


def update(name: str, arrays: ArrayRecord, client: int) -> tuple[ArrayRecord, float, int]:
    """Train a client and validate it."""
    workload = WORKLOADS[name]
    net, optimizer, (x, y, train, val) = made(name)
    net.load_state_dict(arrays.to_torch_state_dict())
    optimizer.state.clear()
    x_client, y_client = x[train[client]], y[train[client]]
    net.train()
    for _ in range(workload.epochs):
        order = torch.randperm(len(x_client))
        for start in range(0, len(order), workload.batch_size):
            batch = order[start : start + workload.batch_size]
            loss = functional.cross_entropy(net(x_client[batch]), y_client[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        scored = functional.cross_entropy(net(x[val[client]]), y[val[client]]).item()
    return ArrayRecord(net.state_dict()), scored, len(x_client)
