"""FedAvg written by hand in plain PyTorch: what every rate is compared with.

One process, one thread, one model, torch's fused SGD, tensors that are indexed: no class and no call that is not
needed. It knows nothing of our package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.device import now, used
from benchmarks.workloads import COHORT, LR, MOMENTUM, Clients, Workload


@dataclass(frozen=True)
class BareJob:
    """One client's work: who, from which arm's weights, in which order, with which hyperparameters."""

    client: int
    order: int
    epochs: int
    batch_size: int
    lr: float = LR
    momentum: float = MOMENTUM
    weight_decay: float = 0.0
    arm: int = 0


class Trained(NamedTuple):
    """What a run took, and every arm's weights after it."""

    seconds: float
    weights: dict[int, list[Tensor]]


Plan = Sequence[Sequence[BareJob]]
"""The jobs of every round."""


def train(model: nn.Module, clients: Clients, plan: Plan) -> Trained:
    """Train every arm of a plan, each from the model's weights."""
    model.to(used())
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, fused=True)
    group = optimizer.param_groups[0]
    parameters = list(model.parameters())
    initial = [parameter.detach().clone() for parameter in parameters]
    arms = {job.arm: initial for job in plan[0]}
    generator = torch.Generator()
    x, y, train, val = clients.on(used())
    began = now()
    for jobs in plan:
        sums = {arm: [torch.zeros_like(weight) for weight in initial] for arm in arms}
        totals = dict.fromkeys(arms, 0)
        for job in jobs:
            with torch.no_grad():
                for parameter, weight in zip(parameters, arms[job.arm], strict=True):
                    parameter.copy_(weight)
            optimizer.state.clear()
            group["lr"], group["momentum"], group["weight_decay"] = job.lr, job.momentum, job.weight_decay
            own, validation = train[job.client], val[job.client]
            x_client, y_client = x[own], y[own]
            generator.manual_seed(job.order)
            model.train()
            for _ in range(job.epochs):
                order = torch.randperm(len(own), generator=generator).to(x.device)
                for start in range(0, len(own), job.batch_size):
                    batch = order[start : start + job.batch_size]
                    loss = functional.cross_entropy(model(x_client[batch]), y_client[batch])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            model.eval()
            with torch.no_grad():
                if math.isfinite(functional.cross_entropy(model(x[validation]), y[validation]).item()):
                    for added, parameter in zip(sums[job.arm], parameters, strict=True):
                        added.add_(parameter, alpha=len(own))
                    totals[job.arm] += len(own)
        for arm, total in totals.items():
            if total:
                arms[arm] = [added / total for added in sums[arm]]
    return Trained(now() - began, arms)


def drawn(workload: Workload, clients: int, cohort: int = COHORT, rounds: int | None = None) -> Plan:
    """Return rounds of cohorts that are drawn here.

    >>> from benchmarks.workloads import WORKLOADS
    >>> plan = drawn(WORKLOADS["mlp"], clients=100, cohort=10, rounds=3)
    >>> len(plan), len(plan[0]), plan[0][0].batch_size
    (3, 10, 16)
    """
    generator = torch.Generator().manual_seed(0)
    return [
        [
            BareJob(client, order, workload.epochs, workload.batch_size)
            for order, client in enumerate(torch.randperm(clients, generator=generator)[:cohort].tolist())
        ]
        for _ in range(rounds or workload.rounds)
    ]


def plan_checked(plan: Plan, rounds: int, jobs: int) -> Plan:
    """Return a plan, having seen that it has as many rounds and jobs as the other side's.

    >>> plan_checked([], rounds=1, jobs=10)
    Traceback (most recent call last):
    ...
    ValueError: the bare loop must do 1 rounds of 10 jobs, got [].
    """
    found = [len(round_) for round_ in plan]
    if found != [jobs] * rounds:
        raise ValueError(f"the bare loop must do {rounds} rounds of {jobs} jobs, got {found}.")
    return plan


def rate(workload: Workload, clients: Clients, plan: Plan) -> float:
    """Return client updates per second."""
    return sum(map(len, plan)) / train(workload.seeded(), clients, plan).seconds
