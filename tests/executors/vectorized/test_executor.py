"""Side by side is one after another: the same results, or a reason in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lightning_fedhpo import Choice, FederatedData, FederatedLoop, Fixed, Float, Int, Natural, RandomSearch, SearchSpace
from lightning_fedhpo.client.workbench import STEPS_COMPARED, Workbench
from lightning_fedhpo.executors import Vectorized, auto
from lightning_fedhpo.executors.step_costs import Operations, StepCost
from lightning_fedhpo.executors.vectorized import builder
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs
from lightning_fedhpo.executors.vectorized.lane_shape import DrawnJobs, LaneShape
from lightning_fedhpo.testing import ToyModule, toy_tensors
from lightning_fedhpo.types import Job
from tests.executors.toys import PLAIN, Net, agree, clients, executor_of, is_vectorized, run
from tests.executors.vectorized.zoo import CASES, Drifting, tuned


def both(case: str, other: Vectorized) -> FederatedLoop:
    """Run a case one after another and side by side, compare the two, and return the second."""
    results = []
    for executor in ("sequential", other):
        module, callbacks, options = CASES[case]()
        results.append(run(executor, module, *callbacks, **options))
    assert is_vectorized(results[1])
    agree(*results)
    return results[1]


def shaped(monkeypatch: pytest.MonkeyPatch, lanes: int, width: int, limit: int | None = None) -> None:
    """Have lanes of this shape, whatever pays."""
    monkeypatch.setattr(builder, "choose_shape", lambda *_, **__: LaneShape(lanes, width, limit, share=0.5))


@pytest.mark.parametrize("case", CASES)
def test_the_same_as_one_after_another(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three lanes for more jobs, and pieces of five examples that fill no batch evenly."""
    shaped(monkeypatch, 3, 5)
    assert "3 lanes of 5 examples" in both(case, PLAIN).choice


@pytest.mark.parametrize("case", ["rounds, scores before", "batch sizes", "adam"])
def test_the_same_in_lanes_of_the_shape_that_pays(case: str) -> None:
    both(case, PLAIN)


def test_jobs_with_large_batches_run_alone_in_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    shaped(monkeypatch, 2, 4, limit=8)
    alone: list[int] = []
    run_job = Workbench.run_job

    def noted(bench: Workbench, job: Job, *rest: Any) -> Any:
        alone.append(job.client)
        return run_job(bench, job, *rest)

    monkeypatch.setattr(Workbench, "run_job", noted)
    space = tuned(batch_size=Choice([4, 8, 16]))
    results = [run(way, Net(), space, cohort=8, epochs=2) for way in ("sequential", "auto")]
    assert is_vectorized(results[1]) and "but for those with batches of 8 examples or more" in results[1].choice
    agree(*results)
    sizes = [(row["client"], min(row["batch_size"], row["train_examples"])) for row in results[1].result.jobs]
    large = [client for client, size in sizes if size >= 8]
    assert 0 < len(large) < 8 and alone[-len(large) :] == large


@pytest.mark.parametrize(("tick", "most"), [(60.0, 16), (80.0, 16), (150.0, 4), (1000.0, 0)])
def test_a_round_chooses_which_jobs_run_in_lanes(tick: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step costs 100: of 48 examples alone, batches of 16 cost 300 and of 4 cost 1200; in pieces of 4, 12 ticks."""
    shape = LaneShape(2, 4, None, 0.5, tick, StepCost(100.0, 0.0, 0.0))
    jobs = [DrawnJobs(np.full(4, 48), np.full(4, size), np.ones(4, dtype=int)) for size in (4, 16)]
    in_one = 4 // 2 * 12 * tick  # two jobs a lane
    expected = [in_one < 4 * (1200 + 200), in_one < 4 * (300 + 200)]
    assert [shape.inside(one).tolist() for one in jobs] == [[inside] * 4 for inside in expected]
    assert expected == [most >= 4, most >= 16]
    equal = DrawnJobs(np.full(3, 48), np.full(3, 16), np.ones(3, dtype=int))  # the third has a lane to itself
    assert shape.inside(equal).all() == (24 * tick < 3 * 500)
    monkeypatch.setattr(builder, "choose_shape", lambda *_, **__: shape)
    space = tuned(batch_size=Choice([4, 8, 16]))
    agree(*(run(way, Net(), space, cohort=8, epochs=2) for way in ("sequential", "auto")))


def test_jobs_run_in_lanes_as_asked_for_where_a_step_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "operations", lambda *_: Operations(0.0))  # as after an error while it counts
    fed = run(PLAIN, Net(), tuned(batch_size=Choice([4, 8])), cohort=4, epochs=2)
    assert is_vectorized(fed), fed.choice


def test_the_first_comparison_takes_no_more_epochs_than_it_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    plan = BatchedJobs._planned

    def noted(batched: BatchedJobs, work: Any) -> Any:
        trained.extend(one.steps for one in work if batched.bench.limits.steps)
        return plan(batched, work)

    monkeypatch.setattr(BatchedJobs, "_planned", noted)
    agree(*(run(way, Net(), epochs=5) for way in ("sequential", "auto")))
    assert trained and max(trained) < 2 * STEPS_COMPARED


def test_the_same_with_little_memory() -> None:
    both("batch sizes", Vectorized(compile=False, memory=1))


@pytest.mark.parametrize("case", ["logs of all kinds", "fedex", "adamw", "attributes"])
def test_double_precision_keeps_its_digits(case: str) -> None:
    """Sums of doubles in another order differ by 1e-12; in single precision it is 1e-8."""

    def widen(x: Tensor, y: Tensor) -> None:
        x.data = x.double()

    results = []
    for executor in ("sequential", PLAIN):
        module, callbacks, options = CASES[case]()
        results.append(run(executor, module.double(), *callbacks, **(options | {"data": clients(widen)})))
    assert is_vectorized(results[1]) and results[1].arms[0].weights[0].dtype == torch.float64
    agree(*results, weights=1e-12, numbers=1e-11)


@pytest.mark.parametrize("executor", ["sequential", PLAIN], ids=["sequential", "vectorized"])
def test_what_clients_carry_is_added_to_their_gradients(executor: Any) -> None:
    """Where a module's own gradient is zero, a step of SGD is the learning rate times what the client carries."""

    class Still(ToyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return 0.0 * super().training_step(batch, batch_idx)

    module = Still(lr=0.25, momentum=0.0)
    start = [weight.detach().clone() for weight in module.parameters()]
    fed = run(executor, module, algorithm=Drifting(), cohort=8)
    examples, steps, client = (np.array(fed.result.jobs[name]) for name in ("train_examples", "local_steps", "client"))
    share = examples / examples.sum()
    own, common = float((share * steps * 0.1 * (client - 3)).sum()), float((share * steps).sum())
    for weight, old in zip(fed.arms[0].weights, start, strict=True):
        torch.testing.assert_close(weight.detach(), old - 0.25 * 0.5 * (own + 0.2 * common * old))


def test_a_client_that_carries_something_else_is_named() -> None:
    class Uneven(Drifting):
        def carried(self, arm: Any, client: int | None) -> list[Tensor]:
            return super().carried(arm, client)[: 1 if arm.rounds and client else None]

        def added_gradient(self, weights: Any, start: Any, hyperparameters: Any, carried: Any) -> list[Tensor]:
            return [0.0 * weight for weight in weights]

    with pytest.warns(UserWarning, match=r"client \d carries 1 tensors in Uneven where another carries 4"):
        run(PLAIN, Net(), algorithm=Uneven(), rounds=2)


class DropLast(FederatedData):
    @property
    def drop_last(self) -> bool:
        return True


def test_unscored_clients_and_batches_left_out() -> None:
    """A client without validation examples has no score, and examples beyond whole batches are not trained on."""
    x, y = toy_tensors(60)
    found = []
    for executor in ("sequential", PLAIN):
        data = DropLast((x, y), Natural(np.repeat([0, 1, 2, 3], [2, 18, 20, 20])), batch_size=8)
        found.append(run(executor, Net(), data=data))
    agree(*found)
    assert [row["score_after"] for row in found[1].result.jobs if row["client"] == 0] == [None]


def test_dropout_drops_and_is_drawn_for_every_job() -> None:
    same, again, none = (run(PLAIN, Net(dropout=rate), epochs=2) for rate in (0.5, 0.5, 0.0))
    assert is_vectorized(same)
    assert all(torch.equal(a, b) for a, b in zip(same.arms[0].weights, again.arms[0].weights, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(same.arms[0].weights, none.arms[0].weights, strict=True))


def test_a_tuned_dropout_is_each_clients_own() -> None:
    fed = run(PLAIN, Net(dropout=0.1), tuned(dropout=Float(0.0, 0.9)), cohort=8, rounds=3)
    assert is_vectorized(fed), "compared in rounds 1 and 2, with the same masks both ways"
    assert len(set(fed.result.jobs["dropout"])) > 1
    results = [run(way, Net(dropout=0.1), Fixed({"dropout": 0.0}), cohort=8) for way in ("sequential", PLAIN)]
    agree(*results)


def test_a_job_does_not_depend_on_what_is_computed_beside_it() -> None:
    """Dropout masks are the job's own: few at a time or all at once, a client comes out the same."""
    fed = run(PLAIN, Net(dropout=0.5), cohort=8)
    batched: Any = executor_of(fed).batched  # type: ignore[attr-defined]  # it is the vectorised one
    arms, jobs, context = {0: fed.arms[0]}, fed._round.jobs, fed._round.context
    together = [[weight.clone() for weight in one.weights] for one in batched.run(jobs, arms, context)]
    batched.memory = 2 * batched.model_bytes * 3  # three jobs at a time
    again = [weights for one in executor_of(fed).run(jobs, arms, context) for weights in [list(one.weights)]]
    for one, other in zip(together, again, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*not finite:UserWarning")
def test_a_client_that_is_done_is_not_spoilt_by_what_is_computed_beside_it() -> None:
    """A client whose weights have left the range of a loss ends as it would alone, however long others go on."""

    class Squares(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return (self(batch[0])[:, 0] - batch[1]).pow(4).mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", ((self(batch[0])[:, 0] > 0) == (batch[1] > 0)).float().mean())

    space = SearchSpace(
        client={"lr": Float(0.01, 100.0, log=True), "batch_size": Choice([2, 8, 16]), "epochs": Int(1, 4)}
    )
    found = [
        run(executor, Squares(), RandomSearch(space, budget=12, max_rounds=1), cohort=8)
        for executor in ("sequential", PLAIN)
    ]
    assert is_vectorized(found[1])
    dropped = [fed.result.jobs["dropped"] for fed in found]
    assert dropped[0] == dropped[1]
    assert 0.1 < np.mean(dropped[0]) < 0.9
    for row, twin in zip(*(fed.result.jobs for fed in found), strict=True):
        if not row["dropped"]:
            assert twin["score_after"] == pytest.approx(row["score_after"], abs=0.35), "of few examples"


@pytest.mark.parametrize("on_error", ["drop", "raise"])
@pytest.mark.filterwarnings("ignore:.*client 7 failed:UserWarning")
def test_a_client_that_fails_is_named_or_left_out(on_error: Any) -> None:
    def broken(x: Tensor, y: Tensor) -> None:
        y[150] = 7

    with pytest.warns(UserWarning, match="this round goes on one job after another"):
        if on_error == "raise":
            with pytest.raises(RuntimeError, match="client 7 failed in round 0"):
                run(PLAIN, Net(), data=clients(broken), cohort=8)
            return
        fed = run(PLAIN, Net(), data=clients(broken), on_error="drop", cohort=8)
    assert [row["client"] for row in fed.result.jobs if row["dropped"]] == [7]
    assert executor_of(fed).vectorized_matches is True, "another round may do without that client"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["fedex", "prox", "adam", "sequences"])
def test_compiled_is_the_same_too(case: str) -> None:
    fed = both(case, Vectorized(compile=True))
    assert executor_of(fed).batched.programs.compiles  # type: ignore[attr-defined]  # it is the vectorised one


def test_a_failing_compiler_is_said_and_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr("lightning_fedhpo.executors.vectorized.programs.compiled", fails)
    with pytest.warns(UserWarning, match="compiling failed: no compiler .RuntimeError"):
        other = run(Vectorized(compile=True), Net())
    agree(run("sequential", Net()), other)
