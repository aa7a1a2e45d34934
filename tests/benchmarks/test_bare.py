"""The bare loop does what ours does: same jobs, same weights."""

from __future__ import annotations

import pytest
import torch

from benchmarks import bare
from benchmarks.cases import PAPERS, RATES_ONLY
from benchmarks.federated import clients_of, federation, plan_of
from benchmarks.rates import federated
from benchmarks.workloads import WORKLOADS
from lightning_fedhpo import SearchSpace


@pytest.mark.parametrize("space", [None, RATES_ONLY, PAPERS], ids=["plain", "lr", "papers' space"])
def test_both_end_with_the_same_weights(space: SearchSpace | None) -> None:
    workload = WORKLOADS["logistic"]
    data = federation(workload, clients=20)
    size = {} if space is None else {"arms": 3, "space": space}
    found = federated(workload, data, cohort=4, rounds=2, **size)
    plan = plan_of(found.fed.result.jobs, workload)
    bare.plan_checked(plan, rounds=2, jobs=found.updates)
    trained = bare.train(workload.seeded(), clients_of(data), plan)
    assert len(found.fed.arms) == len(trained.weights)
    for arm in found.fed.arms:
        for ours, theirs in zip(arm.weights, trained.weights[arm.index], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_hyperparameters_of_a_job_reach_the_bare_loop() -> None:
    workload = WORKLOADS["logistic"]
    clients = workload.clients(2)
    job = bare.BareJob(client=0, order=0, epochs=1, batch_size=10)
    ways = [{}, {"lr": 0.5}, {"momentum": 0.0}, {"weight_decay": 0.1}, {"epochs": 2}, {"batch_size": 50}]
    ends = [bare.train(workload.seeded(), clients, [[bare.BareJob(**(vars(job) | way))]]).weights[0][0] for way in ways]
    for end in ends[1:]:
        assert not torch.allclose(ends[0], end)


def test_clients_own_every_example_once() -> None:
    workload = WORKLOADS["mlp"]
    clients = workload.clients(5)
    owned = torch.cat([*clients.train, *clients.val])
    assert owned.sort().values.tolist() == list(range(5 * workload.size))
    assert {len(run) for run in clients.train} == {workload.examples}
