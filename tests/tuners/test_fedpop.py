"""FedPop in whole runs: who replaces whom, recomputed from what the run wrote down; copies that share nothing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo import (
    Choice,
    FedAvg,
    FederatedLoop,
    FedPop,
    Float,
    Int,
    RandomSearch,
    SearchSpace,
    SuccessiveHalving,
)
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.searches import Search
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from lightning_fedhpo.tuners import Tuner
from lightning_fedhpo.types import ClientResult, Job, RoundContext, RunPlan
from tests.algorithms.stateful import Controls
from tests.runs import composed, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked

sys.path.insert(0, str(Path(__file__).parents[1] / "tracking"))
import offline  # noqa: E402 - a module of the tests beside this folder

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "momentum": Float(0.0, 0.9), "batch_size": Int(4, 16)},
    server={"lr": Float(0.3, 1.0, log=True), "momentum": Float(0.0, 0.5)},
)


class Copies(Callback):
    """Looks at every arm that has just been replaced, beside the one that it was replaced by."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        fed, tuner = trainer.callbacks[0], trainer.callbacks[1]  # type: ignore[attr-defined]  # Trainer sets it
        born = [row for row in tuner.lineage if row["round"] == trainer.current_epoch]
        for row in born:
            arm, source = fed.arms[row["arm"]], fed.arms[row["parent"]]
            mine, theirs = list(tensors(arm)), list(tensors(source))
            assert mine
            assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
            assert not {t.data_ptr() for t in mine} & {t.data_ptr() for t in theirs}
            assert arm.scores == source.scores and arm.scores is not source.scores
            self.seen.append((row["round"], arm.index, source.index))


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


def run(tuner: Tuner | None, search: Search | None, *callbacks: Callback, **loop: Any) -> FederatedLoop:
    """Run the toy federation."""
    fed = FederatedLoop(**({"cohort": 3, "executor": "sequential"} | loop))
    own = [one for one in (tuner, search) if one is not None]
    rounds = search.rounds if search is not None else 4
    quiet_trainer(rounds, fed, *own, *callbacks).fit(ToyModule(), datamodule=toy_data())
    return fed


def drawn(arms: int, rounds: int, space: SearchSpace = SPACE) -> RandomSearch:
    return RandomSearch(space, budget=arms * rounds, max_rounds=rounds)


def test_without_levels_it_is_random_search_bitwise() -> None:
    alone, beside = run(None, drawn(3, 3)), run(FedPop(SPACE, levels=()), drawn(3, 3))
    for one, other in zip(alone.arms, beside.arms, strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(tensors(one), tensors(other), strict=True))
    first, second = alone.result, beside.result
    assert first.jobs.to_dict() == second.jobs.to_dict()
    assert first.history.to_dict() == second.history.to_dict()
    assert (first.best, first.arms, first.ledger) == (second.best, second.arms, second.ledger)


@pytest.mark.parametrize("algorithm", [FedAvg, Controls])
def test_a_replaced_arm_is_its_source_and_shares_no_tensor_with_it(algorithm: Any) -> None:
    space = SearchSpace(client=dict(SPACE.client), server={"lr": Float(0.3, 1.0), "momentum": Float(0.1, 0.5)})
    copies = Copies()
    run(FedPop(space, interval=1), drawn(6, 4, space), copies, algorithm=algorithm(momentum=0.5))
    assert [number for number, _, _ in copies.seen] == [0, 0, 1, 1, 2, 2]


def equation_5(scores: Sequence[float], discount: float) -> float:
    weights = [discount ** (len(scores) - r) for r in range(1, len(scores) + 1)]
    return sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights)


@pytest.mark.filterwarnings("ignore:mode='max' prefers large values of 'val_loss'")
@pytest.mark.parametrize("mode", ["min", "max"])
def test_which_arms_are_replaced_follows_from_the_history(mode: Any) -> None:
    arms, interval, discount = 7, 2, 0.5
    tuner = FedPop(SPACE, levels=["g"], interval=interval, discount=discount)
    fed = run(tuner, drawn(arms, 6), mode=mode)
    history = list(fed.result.history)
    parents = {(row["round"], row["arm"]): row["fedpop/parent"] for row in history}
    expected = []
    for last in (1, 3):  # not after the last round
        window = range(last - interval + 1, last + 1)
        scores = [[row["score"] for row in history if row["arm"] == arm and row["round"] in window] for arm in range(7)]
        means = [equation_5(own, discount) * (-1 if mode == "max" else 1) for own in scores]
        order = sorted(range(arms), key=means.__getitem__)
        assert len(set(means)) == arms
        best, worst = order[:2], order[-2:]
        assert all(parents[last, arm] in best for arm in worst)
        expected += [(last, arm) for arm in worst]
    changed = [place for place, parent in parents.items() if parent != place[1]]
    assert sorted(changed) == sorted(expected)
    assert sorted((row["round"], row["arm"]) for row in tuner.lineage) == sorted(expected)


def test_an_interval_below_one_is_a_part_of_the_longest_arm() -> None:
    tuner = FedPop(SPACE, levels=["g"], interval=0.25)
    run(tuner, drawn(3, 8))
    assert sorted({row["round"] for row in tuner.lineage}) == [1, 3, 5]


@pytest.mark.filterwarnings("ignore:mode='max' prefers large values of 'val_loss'")
@pytest.mark.parametrize("mode", ["min", "max"])
def test_which_places_are_replaced_follows_from_the_jobs(mode: Any) -> None:
    rounds, cohort = 5, 7
    fed = run(FedPop(SPACE, levels=["l"], resample=0), drawn(2, rounds), mode=mode, cohort=cohort)
    jobs = list(fed.result.jobs)
    names = list(SPACE.client)
    for arm in range(2):
        of_round = [
            {row["config"]: row for row in jobs if row["arm"] == arm and row["round"] == number}
            for number in range(rounds)
        ]
        for number, (now, after) in enumerate(pairwise(of_round)):
            scores = {place: row["score_after"] * (-1 if mode == "max" else 1) for place, row in now.items()}
            order = sorted(scores, key=scores.__getitem__)  # as sorted does, the earlier of equals comes first
            best, worst = order[:2], order[-2:]
            changed = [place for place in range(cohort) if values(now[place], names) != values(after[place], names)]
            assert sorted(changed) == sorted(worst)
            fade = (1 + math.cos(math.pi * (number + 1) / rounds)) / 2
            for place in worst:
                assert any(
                    abs(math.log10(after[place]["lr"] / now[source]["lr"])) <= 0.1 * fade * math.log10(500) + 1e-9
                    and abs(after[place]["momentum"] - now[source]["momentum"]) <= 0.1 * fade * 0.9 + 1e-9
                    and abs(after[place]["batch_size"] - now[source]["batch_size"]) <= 1
                    for source in best
                )


def values(row: dict[str, Any], names: Sequence[str]) -> list[Any]:
    return [row[name] for name in names]


def sent(place: int, score: float | None, arm: int = 0) -> ClientResult:
    return ClientResult(Job(0, arm, place, {}, place), [], [], (), {}, 1, 1, 1, 1, 1, None, score)


def planned(arms: int | None, rounds: int | None, cohort: int = 10) -> RunPlan:
    return RunPlan(arms, rounds, cohort, 50, "val_loss", 1.0, False, None, lambda: None)


WIDE = SearchSpace(
    client={
        "lr": Float(1e-4, 1.0, log=True),
        "momentum": Float(0.0, 0.9),
        "epochs": Int(1, 5),
        "width": Int(1, 1000, log=True),
        "batch_size": Choice([8, 16, 32, 64, 128]),
        "activation": Choice(["relu", "gelu", "tanh"]),
    },
    server={"lr": Float(0.1, 10.0, log=True), "momentum": Choice([0.0, 0.9])},
)


def test_10_000_suggestions_stay_in_the_ball_and_in_the_space() -> None:
    epsilon, rounds, cohort, draw = 0.1, 170, 20, np.random.default_rng(0)
    tuner = FedPop(WIDE, interval=5, epsilon=epsilon)
    tuner.plan(planned(3, rounds))
    arms = [Arm(index, FedAvg(), {}, [torch.zeros(1)]) for index in range(3)]
    seen, bases = 0, set()
    for number in range(rounds):
        context = RoundContext(number, 1, False)
        for arm in arms:
            suggestions = [one.config for one in tuner.suggest(arm, range(cohort), context)]
            base = tuner.best(arm)
            bases.add(json.dumps(base))
            for config in suggestions:
                WIDE.check(config)
                assert abs(math.log10(config["lr"] / base["lr"])) <= 4 * epsilon + 1e-9
                assert abs(config["momentum"] - base["momentum"]) <= 0.9 * epsilon + 1e-12
                assert abs(config["epochs"] - base["epochs"]) <= 1
                factor = 1000**epsilon  # whole numbers are rounded up
                assert math.floor(base["width"] / factor) <= config["width"] <= math.ceil(base["width"] * factor)
                assert config["batch_size"] / base["batch_size"] in (0.5, 1, 2)
                assert config["activation"] == base["activation"]
            seen += len(suggestions)
            arm.rounds += 1
            arm.scores.append(draw.random())
            tuner.observe(arm, [sent(place, draw.random()) for place in range(cohort)], context)
        tuner.evolve(arms, context)
        assert all(WIDE.contains({name: arm.server[name] for name in WIDE.server}, "server") for arm in arms)
    assert seen >= 10_000
    assert len(bases) > 20, "arms are replaced, too"


def test_who_has_no_score_is_replaced_first_and_nobody_takes_over_from_it() -> None:
    tuner = FedPop(WIDE, levels=["l"], rho=2)
    tuner.plan(planned(1, 50))
    arm, context = Arm(0, FedAvg(), {}, [torch.zeros(1)]), RoundContext(0, 1, False)
    before = [dict(one.config) for one in tuner.suggest(arm, range(6), context)]
    # 0 and 4 were left out of the round; 3 has no validation examples: five are compared, two are replaced.
    tuner.observe(arm, [sent(1, 0.5), sent(2, 0.1), sent(3, None), sent(5, 0.7)], context)
    after = [one.config for one in tuner.suggest(arm, range(6), RoundContext(1, 1, False))]
    assert [place for place in range(6) if after[place] != before[place]] == [0, 4]
    tuner.observe(arm, [], context)
    again = [one.config for one in tuner.suggest(arm, range(6), RoundContext(2, 1, False))]
    assert again == after


def test_arms_that_have_all_diverged_are_left_alone() -> None:
    tuner = FedPop(WIDE, levels=["g"], interval=1)
    tuner.plan(planned(3, 50))
    arms, context = [Arm(index, FedAvg(), {}, [torch.zeros(1)]) for index in range(3)], RoundContext(0, 1, False)
    for arm in arms:
        tuner.suggest(arm, range(2), context)
        arm.rounds, arm.scores = 1, [math.nan]
    tuner.evolve(arms, context)
    assert not len(tuner.lineage)
    arms[2].scores = [0.5]
    tuner.evolve(arms, context)
    assert [(row["arm"], row["parent"]) for row in tuner.lineage] == [(1, 2)]


class Recording(FedAvg):
    """Keeps what clients send."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent: dict[tuple[int, int], list[tuple[int, list[Tensor]]]] = {}

    def receive(self, arm: Arm, result: ClientResult) -> None:
        super().receive(arm, result)
        weights = [weight.detach().clone() for weight in result.weights]
        self.sent.setdefault((result.job.round, arm.index), []).append((result.train_examples, weights))


class States(Callback):
    """Keeps arms' weights, momentum buffers and server values after every round."""

    def __init__(self) -> None:
        self.after: dict[tuple[int, int], tuple[list[Tensor], list[Tensor], dict[str, Any]]] = {}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for arm in trainer.callbacks[0].arms:  # type: ignore[attr-defined]  # Trainer sets it
            weights = [weight.detach().clone() for weight in arm.weights]
            buffers = [arm.optimizer.state[weight]["momentum_buffer"].clone() for weight in arm.weights]
            self.after[trainer.current_epoch, arm.index] = weights, buffers, dict(arm.server)


def test_a_server_momentum_that_has_evolved_changes_the_next_aggregation() -> None:
    space = SearchSpace(client=dict(SPACE.client), server={"lr": Float(0.3, 1.0), "momentum": Float(0.1, 0.8)})
    algorithm, states, tuner = Recording(momentum=0.5), States(), FedPop(space, levels=["g"], interval=1)
    run(tuner, drawn(3, 4, space), states, algorithm=algorithm)
    assert len(tuner.lineage) == 3
    for row in tuner.lineage:
        assert row["server/momentum"] != row["server/momentum/parent"]
        now, arm = row["round"], row["arm"]
        old, buffers, server = states.after[now, arm]
        assert (server["momentum"], server["lr"]) == (row["server/momentum"], row["server/lr"])
        results = algorithm.sent[now + 1, arm]
        total = sum(examples for examples, _ in results)
        apart = 0.0
        for place, (weight, buffer) in enumerate(zip(old, buffers, strict=True)):
            mean = sum(examples / total * weights[place].double() for examples, weights in results)
            step = server["momentum"] * buffer.double() + (weight.double() - mean)
            found = states.after[now + 1, arm][0][place].double()
            torch.testing.assert_close(found, weight.double() - server["lr"] * step, atol=1e-6, rtol=1e-6)
            moved = server["lr"] * (row["server/momentum/parent"] - server["momentum"]) * buffer
            apart = max(apart, moved.abs().max().item())
        assert apart > 1e-5, "the parent's momentum would have been noticed"


def test_inside_successive_halving_eliminations_come_first() -> None:
    search = SuccessiveHalving(SPACE, eta=3, eliminations=2, budget=40, max_rounds=12)
    tuner = FedPop(SPACE, levels=["g"], interval=1)
    fed = run(tuner, search)
    ends = search.rungs
    births = list(tuner.lineage)
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


def test_the_ablation() -> None:
    """With "g" alone all of a cohort train with one configuration; with "l" alone nobody becomes another arm."""
    tuner = FedPop(SPACE, levels=["g"], interval=1)
    fed = run(tuner, drawn(3, 4))
    used: dict[tuple[int, int], set[tuple[Any, ...]]] = {}
    for row in fed.result.jobs:
        used.setdefault((row["round"], row["arm"]), set()).add(tuple(values(row, list(SPACE.client))))
    assert {len(configs) for configs in used.values()} == {1}
    assert len(tuner.lineage) == 3 and tuner.server_names == ("lr", "momentum")
    tuner = FedPop(SPACE, levels=["l"])
    fed = run(tuner, drawn(3, 4))
    assert not tuner.tables() and tuner.describe_lineage() == "no arm was replaced"
    assert all(row["fedpop/parent"] == row["arm"] for row in fed.result.history)
    assert all(not arm["ancestors"] for arm in fed.result.arms)
    servers = [[row["server/lr"] for row in fed.result.history if row["arm"] == arm] for arm in range(3)]
    assert all(len(set(own)) == 1 for own in servers)


def test_a_copy_draws_new_places() -> None:
    tuner = FedPop(SPACE, interval=2)
    fed = run(tuner, drawn(3, 4))
    (born,) = tuner.lineage
    lrs = {
        (row["round"], row["config"]): row["lr"]
        for row in fed.result.jobs
        if row["arm"] == born["arm"] and row["round"] in (1, 2)
    }
    assert all(lrs[1, place] != lrs[2, place] for place in range(3))
    base = born["client/lr"]
    assert all(abs(math.log10(lrs[2, place] / base)) <= 0.1 * math.log10(500) + 1e-9 for place in range(3))


def test_lineage_is_kept_and_readable() -> None:
    tuner = FedPop(SPACE, levels=["g"], interval=1)
    fed = run(tuner, drawn(3, 3))
    first, second = tuner.lineage
    other = FedPop(SPACE, levels=["g"], interval=1)
    other.load_state_dict(tuner.state_dict())
    assert other.lineage.to_dict() == tuner.lineage.to_dict()
    assert other.describe_lineage() == tuner.describe_lineage()
    history = {(row["round"], row["arm"]): row for row in fed.result.history}
    for row in (first, second):
        assert history[row["round"], row["arm"]]["fedpop/parent"] == row["parent"]
        parent, child = history[row["round"], row["parent"]], history[row["round"] + 1, row["arm"]]
        for name in ("server/lr", "server/momentum", "client/lr", "client/momentum", "client/batch_size"):
            assert row[f"{name}/parent"] == parent[name]
            assert row[name] == child[name]
    lines = tuner.describe_lineage().splitlines()
    assert lines[0].startswith(f"round 0: arm {first['arm']} became arm {first['parent']} with server/lr ")
    assert f"server/lr {first['server/lr/parent']:.4g} -> {first['server/lr']:.4g}" in lines[0]


def test_a_new_run_begins_without_the_old_ones_arms() -> None:
    tuner = FedPop(SPACE, interval=1)
    run(tuner, drawn(3, 3))
    old = tuner.describe_lineage()
    run(tuner, drawn(3, 3))
    assert tuner.describe_lineage() == old


def test_the_table_of_a_run_of_fedhpo_and_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    chosen = ["search=random", "tuner=fedpop", "search.budget=15", "trainer.max_epochs=5", "fed.executor=sequential"]
    train(composed(tmp_path, *chosen, "logger.mode=offline", logger="wandb"))
    written = rows(tmp_path / "lineage.csv")
    assert [row["round"] for row in written] == ["0", "1", "2", "3"]
    (path,) = offline.files(tmp_path)
    logged = offline.table(path, "lineage")
    assert [float(row["server/lr"]) for row in written] == [row["server/lr"] for row in logged]
    assert all(row["arm"] != row["parent"] for row in logged)
    names = {name for row in offline.history(path) for name in row}
    assert {"fedpop/parent", "fedpop/epsilon"} <= names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ["g", "x"]}, "`levels` must be a sequence of 'g' and 'l', got \\['g', 'x'\\]"),
        ({"levels": "g"}, "`levels` must be "),
        ({"interval": 0}, "`interval` must be "),
        ({"interval": 2.5}, "`interval` must be whole rounds, or a part of the run below 1, got 2.5"),
        ({"rho": 1}, "`rho` must be at least 2, got 1: the worst 1/rho are replaced"),
        ({"epsilon": 1.5}, "`epsilon` must be "),
        ({"resample": -0.1}, "`resample` must be "),
        ({"discount": 2}, "`discount` must be "),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        FedPop(SPACE, **options)


def test_a_space_without_client_part() -> None:
    with pytest.raises(ValueError, match="client part"):
        FedPop(SearchSpace(server={"lr": Float(0.1, 1.0)}))


@pytest.mark.parametrize("interval", [4, 9])
def test_an_interval_in_which_no_arm_would_be_replaced(interval: int) -> None:
    with pytest.raises(MisconfigurationException, match=rf"got {interval} with arms of 4 rounds.*interval=0\.1"):
        run(FedPop(SPACE, interval=interval), drawn(3, 4))
    fed = run(FedPop(SPACE, levels=["l"], interval=interval), drawn(3, 4))  # which it is nothing to
    assert fed.result.ledger["rounds"] == 12


def test_an_open_end() -> None:
    with pytest.raises(MisconfigurationException, match="set max_epochs"):
        FedPop(SPACE).plan(planned(1, None))


def test_too_few_to_replace_any() -> None:
    with pytest.warns(UserWarning, match=r"FedPop\(rho=3\) replaces one of 3 arms, and the run has 2: none will"):
        FedPop(SPACE, levels=["g"]).plan(planned(2, 10))
    with pytest.warns(UserWarning, match=r"FedPop\(rho=3\) replaces one of 3 of a cohort's places, and the run has 2"):
        FedPop(SPACE, levels=["l"]).plan(planned(2, 10, cohort=2))


def test_a_server_option_that_the_algorithm_does_not_have() -> None:
    space = SearchSpace(client=dict(SPACE.client), server={"tau": Float(1e-4, 1e-2)})
    with pytest.raises(ValueError, match=r"FedAvg has no server hyperparameter 'tau': its aggregation takes lr, "):
        run(FedPop(space), drawn(3, 4, SearchSpace(client={"dropout": Float(0.0, 0.1)})))
