"""Who takes part, devices that fail or are slow, and rounds without anybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_fedhpo import (
    AvailableClients,
    ClientsBySize,
    ClientsInTurn,
    Devices,
    FedAvg,
    FederatedLoop,
    FedOpt,
    Fixed,
    RandomSearch,
    algorithms,
    participation,
    testing,
    tuners,
)
from lightning_fedhpo.participation.base import Draw, Participation
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from lightning_fedhpo.testing.contract_runs import comparable
from lightning_fedhpo.testing.contracts import toy_space
from lightning_fedhpo.types import Job

SIZES = np.array([0, 10, 20, 30, 40, 50, 60, 70])
EVERY = [getattr(participation, name) for name in participation.__all__ if "Clients" in name]


def cohorts(who: Participation, rounds: int, cohort: int = 3, arm: int = 0, seed: int = 0) -> list[list[int]]:
    return [who.draw(Draw(seed, number, arm, cohort, SIZES)).tolist() for number in range(rounds)]


@pytest.mark.parametrize("kind", EVERY)
def test_a_cohort_is_of_distinct_clients_and_a_function_of_its_place(kind: Callable[[], Participation]) -> None:
    found = cohorts(kind(), 20)
    assert all(len(set(one)) == len(one) == 3 for one in found)
    assert found == cohorts(kind(), 20) and found != cohorts(kind(), 20, seed=1)


def test_clients_by_size_come_in_proportion() -> None:
    """One client a round: the expected share is that of its examples; three standard deviations of 4,000 draws."""
    count = Counter(client for (client,) in cohorts(ClientsBySize(), 4000, cohort=1))
    shares = SIZES / SIZES.sum()
    assert all(abs(count[i] / 4000 - p) <= 3 * np.sqrt(p * (1 - p) / 4000) for i, p in enumerate(shares))


def test_clients_in_turn_all_come_before_anybody_comes_twice() -> None:
    found = [client for one in cohorts(ClientsInTurn(), 8, cohort=3) for client in one]
    assert sorted(found[:8]) == sorted(found[8:16]) == sorted(found[16:]) == list(range(8))


def test_probability_day_and_trace(tmp_path: Path) -> None:
    place = Draw(0, 3, 0, 8, SIZES)
    assert AvailableClients([0, 1, 0, 1, 0, 0, 0, 0]).available(place).tolist() == [1, 3]
    many = Draw(0, 0, 0, 8, np.ones(20_000))
    assert len(AvailableClients(0.3).available(many)) == pytest.approx(6000, abs=3 * np.sqrt(20_000 * 0.21))
    # The mean of (1 + cos) / 2 over a day is one half. At its midnight a client is never there.
    daily = AvailableClients(day=24.0)
    by_round = [set(daily.available(Draw(0, hour, 0, 8, np.ones(500))).tolist()) for hour in range(240)]
    assert sum(map(len, by_round)) == pytest.approx(240 * 250, rel=0.05)
    by_hour = np.array(
        [[client in by_round[hour + 24 * d] for d in range(10)] for client in (0,) for hour in range(24)]
    )
    assert by_hour.mean(1).max() > 0.8 and by_hour.mean(1).min() < 0.2
    (tmp_path / "trace.csv").write_text("round,client\n0,4\n0,2\n2,7\n")
    trace = AvailableClients(trace=tmp_path / "trace.csv")
    assert [sorted(one) for one in cohorts(trace, 6)] == [[2, 4], [], [7]] * 2


def jobs_of(count: int) -> list[Job]:
    return [Job(0, 0, client, {}) for client in range(count)]


def test_devices_by_hand() -> None:
    """Ten seconds for ten examples and so on; two of six are too many, one is too late."""
    devices = Devices(seconds=1.0, deadline=45.0, over_selection=1.5)
    jobs = devices.with_fates(jobs_of(6), [10, 50, 30, 20, 40, 44], cohort=4, seed=0)
    assert [job.seconds for job in jobs] == [10, 50, 30, 20, 40, 44]
    assert [job.lost for job in jobs] == [None, "late", None, None, None, "late"]
    assert devices.round_seconds(jobs, cohort=4) == 40
    assert devices.round_seconds(jobs, cohort=5) == 45  # it waits for a fifth in vain
    assert Devices(seconds=1.0).round_seconds(Devices(seconds=1.0).with_fates(jobs_of(2), [3, 4], 5, 0), 5) == 4


def test_speeds_are_log_normal_and_stay_a_clients_own() -> None:
    devices = Devices(seconds=1.0, spread=0.5)
    logs = np.log([devices.duration(0, client, 1) for client in range(2000)])
    assert logs.mean() == pytest.approx(0, abs=3 * 0.5 / np.sqrt(2000)) and logs.std() == pytest.approx(0.5, rel=0.05)
    assert devices.duration(0, 7, 10) == pytest.approx(10 * devices.duration(0, 7, 1))


def run(rounds: int = 4, cohort: int = 4, **options: Any) -> FederatedLoop:
    fed = FederatedLoop(cohort=cohort, executor="sequential", **options)
    quiet_trainer(rounds, fed).fit(ToyModule(), datamodule=toy_data())
    return fed


def test_lost_work_is_on_the_ledger_and_nowhere_else() -> None:
    fed = run(rounds=8, devices=Devices(seconds=0.5, overhead=1.0, dropout=0.4, spread=0.3))
    plain = run(rounds=8)
    jobs, history = fed.result.jobs, fed.result.history
    lost = sum(cell is not None for cell in jobs["lost"])
    assert 0 < lost < len(jobs) and sum(history["lost"]) == lost and sum(history["dropped"]) == 0
    ledger, before = fed.result.ledger, plain.result.ledger
    assert ledger["local_steps"] == before["local_steps"] and ledger["client_updates"] == before["client_updates"]
    assert ledger["bytes_up"] == before["bytes_up"] * (len(jobs) - lost) / len(jobs)
    assert "seconds" not in before
    # A round without a deadline lasts as long as its slowest client.
    slowest = [max(row["seconds"] for row in jobs if row["round"] == number) for number in range(8)]
    assert history["ledger/seconds"] == pytest.approx(np.cumsum(slowest))
    kept = [row for row in jobs if row["round"] == 0 and row["lost"] is None]
    mean = sum(row["score_after"] * row["val_examples"] for row in kept) / sum(row["val_examples"] for row in kept)
    assert history[0]["score"] == pytest.approx(mean)


@pytest.mark.filterwarnings("ignore:no work of round")
def test_a_round_whose_work_is_all_lost_is_an_empty_one() -> None:
    """One client a round, which fails in every other round: the score is that of the last that came."""
    fed = run(rounds=10, cohort=1, devices=Devices(dropout=0.5))
    history, jobs = fed.result.history, fed.result.jobs
    assert 0 < sum(history["lost"]) < 10 and not any(jobs["dropped"])
    expected = float("nan")
    for row, job in zip(history, jobs, strict=True):
        expected = job["score_after"] if job["lost"] is None else expected
        assert row["score"] == pytest.approx(expected, nan_ok=True)
    with pytest.warns(UserWarning, match="no work of round 3 has arrived: 4 jobs are lost"):
        assert run(rounds=4, devices=Devices(deadline=1e-6)).result.score is None


def test_an_empty_round_says_so_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("round,client\n0,4\n0,2\n2,7\n3,1\n")
    with pytest.warns(UserWarning, match="no client was available in round 1"):
        fed = run(clients=AvailableClients(trace=tmp_path / "trace.csv"))
    history = fed.result.history
    assert history["clients"] == [2, 0, 1, 1] and history[1]["score"] == history[0]["score"] != history[2]["score"]


@pytest.mark.parametrize("kind", [getattr(algorithms, name) for name in algorithms.__all__ if name != "Algorithm"])
@pytest.mark.filterwarnings("ignore:no client was available")
def test_an_empty_round_leaves_everything_as_it_is(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("round,client\n0,4\n0,2\n2,7\n")
    more = {} if kind is FedOpt else {"momentum": 0.5}
    options: dict[str, Any] = {
        "algorithm": kind(**more, local="net.3.*"),
        "clients": AvailableClients(trace=tmp_path / "trace.csv"),
    }
    before, after, later = (run(rounds, **options).arms[0].state_dict() for rounds in (1, 2, 3))
    assert {name for name in before if comparable(before[name]) != comparable(after[name])} == {"rounds", "scores"}
    assert comparable(later["weights"]) != comparable(after["weights"])


def test_local_epochs_take_their_time() -> None:
    """One second for an example and epoch: two epochs of the head, three of the rest."""
    fed = FederatedLoop(FedAvg(local="net.3.*"), 2, executor="sequential", epochs=3, devices=Devices(seconds=1.0))
    quiet_trainer(1, fed, Fixed(client={"local_epochs": 2})).fit(ToyModule(), datamodule=toy_data())
    assert [row["seconds"] for row in fed.result.jobs] == [5 * row["train_examples"] for row in fed.result.jobs]


def test_a_first_round_without_anybody_is_no_divergence() -> None:
    with pytest.warns(UserWarning, match="no client was available"):
        fed = run(rounds=4, clients=AvailableClients(0.0))
    assert fed.result.ledger["client_updates"] == 0 and fed.result.score is None


TUNERS = [getattr(tuners, name) for name in tuners.__all__ if name not in ("Tuner", "FedTune", "Replay")]


@pytest.mark.parametrize("kind", TUNERS)
@pytest.mark.filterwarnings("ignore:no client was available")
def test_every_tuner_goes_on_with_cohorts_of_all_sizes(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("round,client\n0,4\n0,2\n2,7\n3,1\n3,2\n3,3\n3,5\n")
    tuner = testing.toy_instance(kind)
    clients = AvailableClients(trace=tmp_path / "trace.csv")
    fed = FederatedLoop(cohort=3, executor="sequential", clients=clients, devices=Devices(dropout=0.3))
    own = [RandomSearch(toy_space(), budget=18, max_rounds=6)] if tuner.server_names else []
    quiet_trainer(6, fed, tuner, *own).fit(ToyModule(), datamodule=toy_data())
    assert set(fed.result.history["clients"]) == {0, 1, 2, 3}


@pytest.mark.filterwarnings("ignore:no work of round")
def test_resume_is_bitwise(tmp_path: Path) -> None:
    def fitted(rounds: int, path: Path | None = None, dropout: float = 0.3) -> tuple[FederatedLoop, Any]:
        devices = Devices(dropout=dropout, spread=0.5, over_selection=1.3)
        fed = FederatedLoop(cohort=4, executor="sequential", clients=AvailableClients(0.5), devices=devices)
        trainer = quiet_trainer(rounds, fed)
        trainer.fit(ToyModule(), datamodule=toy_data(), ckpt_path=path)
        return fed, trainer

    whole, saved = fitted(6)[0], tmp_path / "third.ckpt"
    fitted(3)[1].save_checkpoint(saved)
    resumed, _ = fitted(6, saved)
    assert resumed.result.history == whole.result.history and resumed.result.jobs == whole.result.jobs
    with pytest.raises(ValueError, match="devices.dropout: 0.3 there, 0.2 here"):
        fitted(6, saved, dropout=0.2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AvailableClients(1.5), "in \\[0, 1\\], got 1.5"),
        (lambda: AvailableClients([0.5, -0.1]), "got -0.1"),
        (lambda: AvailableClients(day=0), "above 0"),
        (lambda: Devices(dropout=2.0), "dropout"),
        (lambda: Devices(over_selection=0.5), "multiplies the cohort"),
        (lambda: run(clients=AvailableClients([0.5, 0.5])), "each of the 8 clients, got 2"),
    ],
)
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_bad_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("round,client\n0,99\n")
    with pytest.raises(ValueError, match="clients that do not exist: 99. The federation has clients 0 to 7"):
        run(clients=AvailableClients(trace=path))
    path.write_text("when,who\n0,1\n")
    with pytest.raises(ValueError, match="columns `round` and `client`.*it has no column 'round'"):
        AvailableClients(trace=path)
    with pytest.raises(ValueError, match="a file that can be read, got .*nowhere.csv"):
        AvailableClients(trace=tmp_path / "nowhere.csv")
    path.write_bytes(b"\xef\xbb\xbfround, client\r\n0, 3\r\n")  # as spreadsheets write it
    assert AvailableClients(trace=path).available(Draw(0, 0, 0, 8, SIZES)).tolist() == [3]
