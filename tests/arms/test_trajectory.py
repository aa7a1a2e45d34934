"""What the best arm did in each round: through its ancestors, in the result and in a run's folder."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer

from lightning_fedhpo import Choice, FedAvg, FederatedLoop, FedPop, FedTune, Float, RandomSearch, SearchSpace
from lightning_fedhpo.arms.trajectory import owners, read_trajectory, write_trajectory
from tests.fits import fit

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "momentum": Float(0.0, 0.9)},
    server={"lr": Float(0.3, 1.0, log=True), "momentum": Float(0.0, 0.5)},
)


def test_owners_through_two_generations() -> None:
    """Arm 7 was a copy of 5 from round 6 on, which was one of 2 from round 4 on."""
    assert owners(7, 8, [(4, 2), (6, 5)]) == [2, 2, 2, 2, 5, 5, 7, 7]
    assert owners(3, 3, []) == [3, 3, 3]
    assert owners(1, 2, [(2, 0)]) == [0, 0]  # replaced after the last round so far


def test_it_is_what_the_best_arm_and_its_ancestors_trained_with() -> None:
    fed = FederatedLoop(FedAvg(decay=0.01), cohort=3, executor="sequential", seed=2)
    search = RandomSearch(SPACE, budget=20, max_rounds=5)
    fit(5, search, FedPop(SPACE, levels=["g"], interval=1, rho=2), fed=fed)
    history = {(row["round"], row["arm"]): row for row in fed.result.history}
    jobs = list(fed.result.jobs)
    owner, owned = fed.result.best_arm, []
    for number in reversed(range(5)):
        owned.insert(0, owner)
        if number:
            owner = history[number - 1, owner]["fedpop/parent"]
    assert len(set(owned)) >= 3, "two generations at least"
    trajectory = fed.result.trajectory
    assert [(row["round"], row["arm"]) for row in trajectory] == list(enumerate(owned))
    for row in trajectory:
        trained = [job for job in jobs if (job["round"], job["arm"]) == (row["round"], row["arm"])]
        assert len(trained) == 3
        assert all(job[name] == value for job in trained for name, value in row["client"].items())
        columns = {name: history[row["round"], row["arm"]][f"server/{name}"] for name in SPACE.server}
        assert row["server"] == {**columns, "decay": 0.01}, "what nobody tunes is in it, too"
        assert set(row["client"]) == set(SPACE.client)
    assert trajectory[-1]["client"] == {name: fed.result.best["client"][name] for name in SPACE.client}
    stays = 1 + sum(one != other for one, other in pairwise(owned))
    assert len({row["client"]["lr"] for row in trajectory}) == stays, "a copy has values of its own"


def test_an_interrupted_round_is_not_in_it() -> None:
    class Stops(Callback):
        def on_train_batch_start(self, trainer: Trainer, module: Any, batch: Any, batch_idx: int) -> None:
            if trainer.current_epoch == 2 and batch_idx == 5:  # the last job, when the other arm has been aggregated
                raise ZeroDivisionError("of somebody else's")

    fed = FederatedLoop(cohort=3, executor="sequential")
    with pytest.raises(ZeroDivisionError):
        fit(4, RandomSearch(SPACE, budget=8, max_rounds=4), Stops(), fed=fed)
    assert max(arm.rounds for arm in fed.arms) == 3, "an arm is done for good"
    assert [row["round"] for row in fed.result.trajectory] == [0, 1]


def test_every_clients_own_configuration(tmp_path: Path) -> None:
    fed, _, _ = fit(3, RandomSearch(SPACE, budget=6, max_rounds=3, per_client=True))
    write_trajectory(tmp_path / "trajectory.json", fed.result.trajectory)
    read = read_trajectory(tmp_path / "trajectory.json")
    best = fed.result.best["clients"]
    for row in read:
        assert len(row["clients"]) == 8
        for client, config in row["clients"].items():
            assert config == {name: best[int(client)][name] for name in SPACE.client}


def test_what_a_tuner_chose_for_each_client_in_each_round() -> None:
    space = SearchSpace(client={"lr": Choice([0.01, 0.1, 0.3])})
    fed, _, _ = fit(4, FedTune(space, credit="federated"), cohort=8, retrain=1)
    trajectory = fed.result.trajectory
    assert len(trajectory) == 3
    jobs = {(job["round"], job["client"]): job["lr"] for job in fed.result.jobs}
    assert {(row["round"], n): own["lr"] for row in trajectory for n, own in row["clients"].items()} == {
        key: lr for key, lr in jobs.items() if key[0] < 3
    }
    assert len({row["clients"][n]["lr"] for row in trajectory for n in range(8)}) > 1


ROW = {"server": {"lr": 1.0}, "client": {"lr": 0.1}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{", "is no JSON"),
        (json.dumps([ROW, {"server": {"lr": 1.0}}]), "list with `server` and `client` values"),
        (json.dumps([ROW, {"server": {"lr": 1.0}, "client": {"momentum": 0.1}}]), "same hyperparameters in every"),
        (json.dumps([{**ROW, "clients": {"0": 0.1}}]), "list with `server` and `client` values"),
    ],
)
def test_files_that_are_none(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "trajectory.json").write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_trajectory(tmp_path / "trajectory.json")
    assert str(tmp_path) in str(caught.value)
