"""Replay: every round has the very values of the trajectory, of clients and of the server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback

from lightning_fedhpo import FedAvg, FederatedLoop, FedPop, Float, RandomSearch, Replay, SearchSpace
from lightning_fedhpo.algorithms import Algorithm
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.trajectory import Trajectory, read_trajectory, write_trajectory
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.testing import toy_run
from tests.runs import composed, quiet_surroundings  # noqa: F401 - the fixture is used unasked

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "momentum": Float(0.0, 0.9)},
    server={"lr": Float(0.3, 1.0, log=True), "momentum": Float(0.0, 0.5)},
)


class Aggregates(FedAvg):
    """Keeps with which values it aggregates."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[dict[str, Any]] = []

    def aggregate(self, arm: Arm) -> None:
        super().aggregate(arm)
        (group,) = arm.optimizer.param_groups
        self.used.append({name: group[name] for name in ("lr", "momentum")})


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    tuner = FedPop(SPACE, levels=["g"], interval=1, rho=2)
    rows = toy_run(5, RandomSearch(SPACE, 20, 5), tuner, seed=3)[0].result.trajectory
    assert len({row["server"]["momentum"] for row in rows}) > 1, "values change on the way"
    return rows


def replayed(
    tuner: Replay, rounds: int, algorithm: Algorithm | None = None, callbacks: Sequence[Callback] = ()
) -> FederatedLoop:
    return toy_run(rounds, tuner, *callbacks, algorithm=algorithm)[0]


def test_every_round_has_the_trajectorys_own_values(tmp_path: Path, trajectory: Trajectory) -> None:
    algorithm = Aggregates()
    write_trajectory(tmp_path / "trajectory.json", trajectory)
    fed = replayed(Replay(tmp_path / "trajectory.json"), 5, algorithm)
    for row, used in zip(trajectory, algorithm.used, strict=True):
        assert used == {name: row["server"][name] for name in ("lr", "momentum")}
        jobs = [job for job in fed.result.jobs if job["round"] == row["round"]]
        assert len(jobs) == 3
        assert all(job[name] == row["client"][name] for job in jobs for name in SPACE.client)
    again = fed.result.trajectory  # what is in force in a replay is written down as well
    assert [(row["server"], row["client"]) for row in again] == [(row["server"], row["client"]) for row in trajectory]


def test_a_longer_run_goes_on_with_the_last_values(trajectory: Trajectory) -> None:
    algorithm, last = Aggregates(), trajectory[-1]
    with pytest.warns(UserWarning, match="the trajectory has 5 rounds and the run 7: its last values are used from ro"):
        fed = replayed(Replay(trajectory), 7, algorithm)
    assert algorithm.used[4] == algorithm.used[6] == {name: last["server"][name] for name in ("lr", "momentum")}
    assert {job["lr"] for job in fed.result.jobs if job["round"] >= 4} == {last["client"]["lr"]}


def test_clients_are_found_by_their_number_in_any_order() -> None:
    rates = {client: 0.01 * (client + 1) for client in range(8)}
    rows = [{"server": {}, "client": {}, "clients": {str(n): {"lr": rates[n]} for n in (7, 0, 3, 1, 2, 6, 5, 4)}}] * 2
    result = replayed(Replay(rows), 2).result
    assert all(job["lr"] == rates[job["client"]] for job in result.jobs)
    assert {client: config["lr"] for client, config in result.best["clients"].items()} == rates
    with pytest.raises(ValueError, match="numbers 100 to 107, and this federation has 8, from 0"):
        replayed(Replay([{**rows[0], "clients": {n + 100: {"lr": 0.1} for n in range(8)}}]), 1)


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        (
            [{"server": {"lr": 0.1, "beta1": 0.9, "tau": 1e-3}, "client": {"lr": 0.1}}],
            ValueError,
            r"no server hyperparameter 'beta1', 'tau': its aggregation .* take an algor",
        ),
        (
            [{"server": {"lr": 1.0}, "client": {"epochs": epochs}} for epochs in (1, 2.5, 3)],
            TypeError,
            r"`epochs` must be a whole number, got 2\.5",
        ),
        (
            [{"server": {}, "client": {}, "clients": {n: {"lr": 0.1} for n in range(6)}}],
            ValueError,
            "configurations for 6 clients, numbers 0 to 5, and this federation has 8, from 0: replay it on",
        ),
    ],
)
def test_bad_input_is_found_before_the_first_round(rows: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        replayed(Replay(rows), len(rows))


def test_by_fedhpo(tmp_path: Path) -> None:
    chosen = ["search=none", "fed.executor=sequential", "trainer.max_epochs=3"]
    first, second = tmp_path / "first", tmp_path / "second"
    train(composed(first, *chosen, "search=random", "tuner=fedpop", "search.budget=9"))
    train(composed(second, *chosen, "tuner=replay", f"tuner.trajectory={first / 'trajectory.json'}"))
    found, again = (read_trajectory(folder / "trajectory.json") for folder in (first, second))
    assert [(row["server"], row["client"]) for row in again] == [(row["server"], row["client"]) for row in found]
    assert len(again) == 3


def test_with_a_search_beside_it_nothing_of_it_is_drawn(trajectory: Trajectory) -> None:
    algorithm = Aggregates()
    search = RandomSearch(SearchSpace(client={"dropout": Float(0.0, 0.1)}, server=dict(SPACE.server)), 10, 5)
    fed = replayed(Replay(trajectory), 5, algorithm, [search])
    assert algorithm.used[::2] == algorithm.used[1::2]  # both arms have the trajectory's server
    assert len(set(fed.result.jobs["dropout"])) == 2
