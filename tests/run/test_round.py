"""A round on a fake workbench, without a Trainer: who trains, what is aggregated when, and what is written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightning_fedhpo import FedAvg, FederatedLoop, processes
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.executors import SequentialExecutor
from lightning_fedhpo.executors.step_costs import StepCost
from lightning_fedhpo.run.population import Population
from lightning_fedhpo.run.records import Records
from lightning_fedhpo.run.round import Round
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.run.state import RunState
from lightning_fedhpo.searches.base import NoSearch
from lightning_fedhpo.testing import toy_data
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import ClientResult, Config, Job, RoundContext, Suggestion


class FakeBench:
    """Client ``c`` always sends the weight ``c`` and has the score ``10 + c``; client 3 fails in arm 1."""

    binding: Any

    def __init__(self) -> None:
        self.binding = self
        self.asked: list[tuple[int, int, float]] = []

    def moved_rates(self, config: Config, arm: Arm) -> dict[str, float]:
        return {}

    def run_job(self, job: Job, arm: Arm, context: RoundContext) -> ClientResult:
        self.asked.append((job.arm, job.client, float(arm.weights[0].detach())))
        failed = job.client == 3 and job.arm == 1
        error = "client 3 failed." if failed else None
        weights, score = [torch.tensor([float(job.client)])], None if failed else 10.0 + job.client
        return ClientResult(
            job, weights, [], [], job.config, 4, 2, 1, 4, 2, None, score, finite=not failed, error=error
        )


class Counting(Tuner):
    """Gives client ``c`` the configuration ``{"epochs": 1 + c}`` and notes what it observes."""

    client_names = ("epochs",)

    def __init__(self) -> None:
        self.observed: list[tuple[int, list[int]]] = []

    def suggest(self, arm: Arm, cohort: Any, context: RoundContext) -> list[Suggestion]:
        return [Suggestion({"epochs": 1 + client}) for client in cohort]

    def observe(self, arm: Arm, results: Any, context: RoundContext) -> None:
        self.observed.append((arm.index, [one.job.client for one in results]))


class FakeTrainer:
    fast_dev_run = False
    limit_train_batches = limit_val_batches = 1.0


def begun() -> tuple[Round, RunState, Counting, FakeBench]:
    """A round of two arms, whose cohorts are all four clients."""
    options, tuner, bench = FederatedLoop(FedAvg(), cohort=4), Counting(), FakeBench()
    data = toy_data(clients=4)
    module: Any = None
    parts = RunParts(FakeTrainer(), module, options, tuner, NoSearch(3), data, None, needs_before=False)
    state = RunState(Population(options.algorithm, 1.0, keeps_start=False), Records(options))
    start: Any = type("Tensors", (), {"weights": [torch.zeros(1)], "buffers": []})
    state.arms.begin_from(start)
    for _ in range(2):
        state.arms.add({}, {})
    executor: Any = SequentialExecutor(bench)  # type: ignore[arg-type]  # a fake
    round = Round(0, parts, state, executor)
    round.begin()
    return round, state, tuner, bench


def test_every_arm_is_aggregated_after_its_last_job_and_the_rows_are_kept() -> None:
    round, state, tuner, bench = begun()
    assert [job.arm for job in round.jobs] == [0] * 4 + [1] * 4
    assert all(job.config == {"epochs": 1 + job.client} for job in round.jobs)
    phases = []
    with round.running():
        for job in round.jobs:
            result = round.run(job)
            assert result.job is job
            round.done(result)
            phases.append([arm.rounds for arm in state.arms])
        with pytest.warns(UserWarning, match="client 3 failed"):
            round.aggregate()
            round.end()
    assert phases == [[0, 0]] * 3 + [[1, 0]] * 4 + [[1, 1]]
    # All have four examples: the mean of 0, 1, 2, 3, and without client 3 of 0, 1, 2. Scores: those means beside 10.
    assert [float(arm.weights[0].detach()) for arm in state.arms] == [1.5, 1.0]
    assert [(row["arm"], row["score"], row["dropped"]) for row in round.rows] == [(0, 11.5, 0), (1, 11.0, 1)]
    assert {index: sorted(clients) for index, clients in tuner.observed} == {0: [0, 1, 2, 3], 1: [0, 1, 2]}
    assert all(weight == 0.0 for _, _, weight in bench.asked)
    assert state.phase == "between rounds" and len(state.records.jobs) == 8 and state.records.rounds == 1


def test_an_interrupted_round_begins_again_where_an_arm_was_not_aggregated() -> None:
    round, state, tuner, _ = begun()
    with pytest.raises(KeyboardInterrupt), round.running():
        for job in round.jobs[:6]:
            round.done(round.run(job))
        raise KeyboardInterrupt
    assert state.phase == "round" and list(state.records.rows) == [0]
    again = Round(0, round._parts, state, round._executor)
    again.begin()
    assert [job.arm for job in again.jobs] == [1] * 4  # the first arm's aggregation holds
    with again.running():
        for job in again.jobs:
            again.done(again.run(job))
        again.aggregate()
    with pytest.warns(UserWarning, match="client 3 failed"):
        again.end()
    assert [float(arm.weights[0].detach()) for arm in state.arms] == [1.5, 1.0] and len(again.rows) == 2


def test_processes_share_a_round_by_what_steps_and_examples_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    round, _, _, _ = begun()
    asked: list[list[float]] = []

    def shared(jobs: Any, arms: Any, train: Any, cost: Any, check: Any) -> Any:
        configs = ({"epochs": 2, "batch_size": size} for size in (8, 48))
        asked.append([cost(replace(jobs[0], config=config)) for config in configs])
        return train(jobs, arms)

    monkeypatch.setattr(processes, "shared_round", shared)
    round._executor.step_cost = StepCost(call=10.0, lane=5.0, example=1.0)
    with round.running():
        round.run(round.jobs[0])
    # 48 of a client's 60 examples train: two epochs of six steps, and of one.
    assert asked == [[2 * (6 * 15.0 + 48), 2 * (15.0 + 48)]]
