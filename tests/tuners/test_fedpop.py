"""FedPop in whole runs: who replaces whom, recomputed from what the run wrote down; copies that share nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from lightning_fedhpo import FedPop, Float, Int, RandomSearch, Scaffold, SearchSpace, SuccessiveHalving
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.testing import toy_run, uneven_data
from lightning_fedhpo.types import ClientResult
from tests.runs import composed, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked

pytestmark = pytest.mark.filterwarnings("ignore:mode='max' prefers large values of 'val_loss'", "ignore:Scaffold takes")

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "momentum": Float(0.0, 0.9), "batch_size": Int(4, 16)},
    server={"lr": Float(0.3, 1.0, log=True), "momentum": Float(0.1, 0.8)},
)
MODES = {"min": 1, "max": -1}


def drawn(arms: int, rounds: int, space: SearchSpace = SPACE) -> RandomSearch:
    return RandomSearch(space, budget=arms * rounds, max_rounds=rounds)


def tensors(arm: Arm) -> Iterator[Tensor]:
    """Yield every tensor of an arm."""
    yield from (*arm.weights, *arm.buffers)
    for state in arm.optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
    for several in arm.server_state.values():
        yield from several
    for _, kept in sorted(arm.client_state.items()):
        for several in kept.values():
            yield from several


class Recording(Scaffold):
    """Keeps what clients send."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kept_models: dict[tuple[int, int], list[tuple[int, list[Tensor]]]] = {}

    def receive(self, arm: Arm, result: ClientResult) -> None:
        super().receive(arm, result)
        weights = [weight.detach().clone() for weight in result.weights]
        self.kept_models.setdefault((result.job.round, arm.index), []).append((result.train_examples, weights))


class States(Callback):
    """Keeps arms' weights, momentum buffers and server values after every round, and compares arms just replaced."""

    def __init__(self) -> None:
        self.after: dict[tuple[int, int], tuple[list[Tensor], list[Tensor], dict[str, Any]]] = {}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        fed, tuner = trainer.callbacks[0], trainer.callbacks[1]  # type: ignore[attr-defined]  # Trainer sets it
        for arm in fed.arms:
            weights = [weight.detach().clone() for weight in arm.weights]
            buffers = [arm.optimizer.state[weight]["momentum_buffer"].clone() for weight in arm.weights]
            self.after[trainer.current_epoch, arm.index] = weights, buffers, dict(arm.server)
        for row in [row for row in tuner.lineage if row["round"] == trainer.current_epoch]:
            arm, source = fed.arms[row["arm"]], fed.arms[row["parent"]]
            mine, theirs = list(tensors(arm)), list(tensors(source))
            assert len(mine) > 3 * len(arm.weights), "weights, momentum, the server's and the clients' states"
            assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
            assert not {t.data_ptr() for t in mine} & {t.data_ptr() for t in theirs}
            assert arm.scores == source.scores and arm.scores is not source.scores


@pytest.fixture(scope="module", params=[("min", "personalized"), ("max", "global")], ids=str)
def population(request: pytest.FixtureRequest) -> tuple[Any, FedPop, Recording, States, str]:
    """Seven arms of six rounds, of which two are replaced after every second."""
    mode, target = request.param
    tuner, algorithm, states = FedPop(SPACE, levels=["g"], interval=2, discount=0.5), Recording(momentum=0.5), States()
    fed, _, _ = toy_run(
        6, tuner, drawn(7, 6), states, algorithm=algorithm, mode=mode, target=target, data=uneven_data()
    )
    return fed, tuner, algorithm, states, mode


def equation_5(scores: Sequence[float], discount: float) -> float:
    weights = [discount ** (len(scores) - r) for r in range(1, len(scores) + 1)]
    return sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights)


def test_which_arms_are_replaced_follows_from_the_jobs(population: Any) -> None:
    fed, tuner, *_, mode = population
    history, expected = list(fed.result.history), []
    plain: dict[tuple[int, int], list[float]] = {}  # whatever the clients' numbers of examples
    column = "score_before" if fed.target == "global" else "score_after"
    for row in fed.result.jobs:
        if row[column] is not None:
            plain.setdefault((row["round"], row["arm"]), []).append(row[column])
    parents = {(row["round"], row["arm"]): row["fedpop/parent"] for row in history}
    for last in (1, 3):  # not after the last round
        scores = [[fmean(plain[number, arm]) for number in (last - 1, last)] for arm in range(7)]
        means = [equation_5(own, 0.5) * MODES[mode] for own in scores]
        order = sorted(range(7), key=means.__getitem__)
        assert len(set(means)) == 7
        assert all(parents[last, arm] in order[:2] for arm in order[-2:])
        expected += [(last, arm) for arm in order[-2:]]
    assert sorted(place for place, parent in parents.items() if parent != place[1]) == sorted(expected)
    assert sorted((row["round"], row["arm"]) for row in tuner.lineage) == sorted(expected)


def test_a_server_momentum_that_has_evolved_changes_the_next_aggregation(population: Any) -> None:
    _, tuner, algorithm, states, _ = population
    assert len(tuner.lineage) == 4
    for row in tuner.lineage:
        assert row["server/momentum"] != row["server/momentum/parent"]
        now, arm = row["round"], row["arm"]
        old, buffers, server = states.after[now, arm]
        assert (server["momentum"], server["lr"]) == (row["server/momentum"], row["server/lr"])
        results = algorithm.kept_models[now + 1, arm]
        total = sum(examples for examples, _ in results)
        apart = 0.0
        for place, (weight, buffer) in enumerate(zip(old, buffers, strict=True)):
            mean = sum(examples / total * weights[place].double() for examples, weights in results)
            step = server["momentum"] * buffer.double() + (weight.double() - mean)
            found = states.after[now + 1, arm][0][place].double()
            torch.testing.assert_close(found, weight.double() - server["lr"] * step, atol=1e-6, rtol=1e-6)
            moved = server["lr"] * (row["server/momentum/parent"] - server["momentum"]) * buffer
            apart = max(apart, moved.abs().max().item())
        assert apart > 3e-6, "the parent's momentum would have been noticed"


def test_lineage_is_kept_and_readable(population: Any) -> None:
    fed, tuner, *_ = population
    other = FedPop(SPACE, levels=["g"], interval=2, discount=0.5)
    other.load_state_dict(tuner.state_dict())
    assert other.lineage.to_dict() == tuner.lineage.to_dict()
    assert other.describe_lineage() == tuner.describe_lineage()
    history = {(row["round"], row["arm"]): row for row in fed.result.history}
    names = ("server/lr", "server/momentum", "client/lr", "client/momentum", "client/batch_size")
    for row in tuner.lineage:
        parent, child = history[row["round"], row["parent"]], history[row["round"] + 1, row["arm"]]
        assert all(row[f"{name}/parent"] == parent[name] and row[name] == child[name] for name in names)
    row, line = tuner.lineage[0], tuner.describe_lineage().splitlines()[0]
    assert line.startswith(f"round 1: arm {row['arm']} became arm {row['parent']} with server/lr ")
    assert f"server/lr {row['server/lr/parent']:.4g} -> {row['server/lr']:.4g}" in line


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SPACE.client)


@pytest.mark.parametrize("mode", MODES)
def test_which_places_are_replaced_follows_from_the_jobs(mode: Any) -> None:
    rounds, cohort = 5, 7
    tuner = FedPop(SPACE, levels=["l"], resample=0)
    fed, _, _ = toy_run(rounds, tuner, drawn(1, rounds), mode=mode, cohort=cohort)
    of_round = [{row["config"]: row for row in fed.result.jobs if row["round"] == number} for number in range(rounds)]
    for number, (now, after) in enumerate(pairwise(of_round)):
        scores = {place: row["score_after"] * MODES[mode] for place, row in now.items()}
        order = sorted(scores, key=scores.__getitem__)  # as sorted does, the earlier of equals comes first
        best, worst = order[:2], order[-2:]
        changed = [place for place in range(cohort) if values(now[place]) != values(after[place])]
        assert sorted(changed) == sorted(worst)
        fade = (1 + math.cos(math.pi * (number + 1) / rounds)) / 2
        for place in worst:
            assert any(
                abs(math.log10(after[place]["lr"] / now[source]["lr"])) <= 0.1 * fade * math.log10(500) + 1e-9
                and abs(after[place]["momentum"] - now[source]["momentum"]) <= 0.1 * fade * 0.9 + 1e-9
                and abs(after[place]["batch_size"] - now[source]["batch_size"]) <= 1
                for source in best
            )
    assert not tuner.tables() and tuner.describe_lineage() == "no arm was replaced"
    assert all(row["fedpop/parent"] == row["arm"] for row in fed.result.history)
    assert len(set(fed.result.history["server/lr"])) == 1


def test_without_levels_it_is_random_search_bitwise() -> None:
    (alone, _, _), (beside, _, _) = (toy_run(3, drawn(3, 3), *own) for own in ([], [FedPop(SPACE, levels=())]))
    for one, other in zip(alone.arms, beside.arms, strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(tensors(one), tensors(other), strict=True))
    first, second = alone.result, beside.result
    assert first.jobs.to_dict() == second.jobs.to_dict()
    assert first.history.to_dict() == second.history.to_dict()
    assert (first.best, first.arms, first.ledger) == (second.best, second.arms, second.ledger)


def test_a_copy_draws_new_places_and_a_new_run_begins_without_the_old_ones_arms() -> None:
    tuner = FedPop(SPACE, interval=2)
    fed, _, _ = toy_run(4, tuner, drawn(3, 4))
    (born,) = tuner.lineage
    of_arm = [row for row in fed.result.jobs if row["arm"] == born["arm"]]
    lrs = {(row["round"], row["config"]): row["lr"] for row in of_arm}
    for place in range(3):
        assert lrs[1, place] != lrs[2, place]
        assert abs(math.log10(lrs[2, place] / born["client/lr"])) <= 0.1 * math.log10(500) + 1e-9
    toy_run(4, tuner, drawn(3, 4))
    assert list(tuner.lineage) == [born]


def test_inside_successive_halving_eliminations_come_first_and_level_g_has_one_configuration_a_cohort() -> None:
    search = SuccessiveHalving(SPACE, eta=3, eliminations=2, budget=40, max_rounds=12)
    tuner = FedPop(SPACE, levels=["g"], interval=1)
    fed, _, _ = toy_run(12, search, tuner)
    ends, births = search.rungs, list(tuner.lineage)
    out = {arm["index"]: arm["eliminated_at"] for arm in fed.result.arms}
    for row in births:
        for arm in (row["arm"], row["parent"]):
            assert out[arm] is None or out[arm] > row["round"] + 1, "it is out by the time that arms are replaced"
    last = ends[0] - 1  # of nine arms three go on, and the worst of these is replaced by the best
    scores = {row["arm"]: row["score"] for row in fed.result.history if row["round"] == last}
    order = sorted(scores, key=scores.__getitem__)
    assert {arm for arm, end in out.items() if end == ends[0]} == set(order[3:])
    assert [(row["arm"], row["parent"]) for row in births if row["round"] == last] == [(order[2], order[0])]
    assert not [row for row in births if row["round"] >= ends[1] - 1], "one arm has nobody to learn from"
    used: dict[tuple[int, int], set[tuple[Any, ...]]] = {}
    for row in fed.result.jobs:
        used.setdefault((row["round"], row["arm"]), set()).add(values(row))
    assert {len(configs) for configs in used.values()} == {1}


def test_the_table_of_a_run_of_fedhpo_and_of_its_logger(tmp_path: Path) -> None:
    chosen = ["search=random", "tuner=fedpop", "search.budget=15", "trainer.max_epochs=5", "fed.executor=sequential"]
    train(composed(tmp_path, *chosen, logger="csv"))
    written = rows(tmp_path / "lineage.csv")
    assert [row["round"] for row in written] == ["0", "1", "2", "3"]
    logged = rows(tmp_path / "csv" / "lineage.csv")
    assert [row["server/lr"] for row in written] == [row["server/lr"] for row in logged]
    assert all(row["arm"] != row["parent"] for row in logged)
    assert {"fedpop/parent", "fedpop/epsilon"} <= rows(tmp_path / "csv" / "metrics.csv")[0].keys()
