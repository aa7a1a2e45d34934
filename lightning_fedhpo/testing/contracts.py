"""The contracts that every algorithm, tuner and search keeps, as functions that raise ``AssertionError``.

Each takes a function that makes a new object of the kind under test, and runs the toy federation with it. The whole run
that several contracts compare with is computed once, and kept for the last two pairs of a function and an executor.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.algorithms.fedavg import FedAvg
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.executors.settings import Sequential, Setting
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.run.divergence import DivergedError
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.space.search_space import SearchSpace
from lightning_fedhpo.testing import contract_runs as runs
from lightning_fedhpo.testing.contract_runs import CLIENTS, Make, toy_space
from lightning_fedhpo.testing.toy import ToyModule
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.fixed import Fixed
from lightning_fedhpo.types import ClientResult, RoundContext

SEQUENTIAL = Sequential()


def check_same_seed(make: Make, executor: Setting = SEQUENTIAL) -> None:
    """The same seed gives the same run, whatever the global generators' state; another seed gives another run."""
    _, first, _ = runs.whole_run(make, executor)
    with seeding.preserved():
        seeding.seed_user_code(2)
        before = runs.generators()
        second = runs.outcome(*runs.run(make, executor))
        moved = runs.differences(before, runs.generators())
    differing = runs.differences(first, second)
    assert not differing, f"the same seed gave two runs that differ in {differing}"
    assert not moved, f"the run has drawn from the global generator of {moved}"
    other = runs.comparable(runs.run(make, executor, seed=1)[1].state_dict())
    assert first["the model"] != other, "another seed gave the same model"


def check_resume(make: Make, executor: Setting = SEQUENTIAL, every: bool = False) -> None:
    """A run resumed from a safely loaded checkpoint is bitwise the run that never stopped.

    Args:
        make: Makes the object under test.
        executor: Runs the jobs.
        every: Resume from the checkpoints inside and at the end of every round, and not only from one of each.
    """
    _, whole, saved = runs.whole_run(make, executor)
    rounds = runs.rounds_of(make())
    for name in saved if every else (f"round {rounds // 4}, inside", f"round {rounds // 2}, end"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "any.ckpt"
            path.write_bytes(saved[name])
            torch.load(path, weights_only=True)  # or it raises
            resumed = runs.outcome(*runs.run(make, executor, ckpt_path=path))
        differing = runs.differences(whole, resumed)
        assert not differing, f"resumed from {name}, the run differs in {differing}"


def check_nan_survives(make: Make, executor: Setting = SEQUENTIAL) -> None:
    """A client that diverges is left out and counted.

    A round in which all clients diverge does not change the model. The run goes on after it, but ends if it is the
    first.
    """
    try:
        fed, module, messages = runs.run_with_bad_examples(make, executor, {1}, all_in=1)
    except DivergedError as error:
        raise AssertionError("the run did not go on after a round in which all clients diverged") from error
    history = list(fed.result.history)
    assert all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values()), "nan reached the weights"
    assert len({row["round"] for row in history}) == runs.rounds_of(make()), "rounds are missing"
    dropped = [row["clients"] if row["round"] == 1 else 1 for row in history]
    assert [row["dropped"] for row in history] == dropped, "a client that diverged was not left out"
    assert all(math.isfinite(row["score"]) for row in history if row["round"] != 1), "nan reached a score"
    assert any(f"of {CLIENTS}" in text or "clients of round" in text for text in messages), "nothing was said"
    json.dumps(fed.result.best, allow_nan=False)
    with seeding.preserved():
        module = ToyModule(dropout=0.2)
    start = runs.comparable(module.state_dict())
    try:
        runs.run_with_bad_examples(make, executor, range(CLIENTS), module=module)
    except DivergedError as error:
        assert "data is at fault" in str(error), f"something else is taken for the reason: {error}"
    else:
        raise AssertionError("a run that never trains did not end")
    assert runs.comparable(module.state_dict()) == start, "the model changed"


def check_suggestions(make: Make, space: SearchSpace | None = None, executor: Setting = SEQUENTIAL) -> None:
    """Clients train, servers aggregate, and the result deploys with points of the space only.

    Args:
        make: Makes the object under test.
        space: The space; by default the object's own, or the toy space where it has none.
        executor: Runs the jobs.
    """
    fed, _, _ = runs.whole_run(make, executor)
    subject = make()
    space = space or getattr(subject, "space", None) or toy_space()
    clients = set(space.client) if isinstance(subject, Search) else set(subject.client_names) & set(space.client)  # type: ignore[union-attr]  # an algorithm suggests nothing
    assert clients, "nothing of the space is tuned"
    best = fed.result.best
    rows = [*fed.result.jobs, *best.get("clients", {0: best["client"]}).values()]
    wrong = [(name, row[name]) for row in rows for name in clients if row[name] not in space.client[name]]
    if isinstance(subject, Search):
        servers = [(name, arm["server"][name]) for arm in fed.result.arms for name in space.server]
        wrong += [(name, value) for name, value in servers if value not in space.server[name]]
    assert not wrong, f"outside of the space: {wrong[:3]}"


def check_best(make: Make, executor: Setting = SEQUENTIAL) -> None:
    """A run's ``best`` goes back in, also from files: ``Fixed(**best)`` trains with exactly these values."""
    result = runs.whole_run(make, executor)[0].result
    best = json.loads(json.dumps(result.best, allow_nan=False))
    with tempfile.TemporaryDirectory() as folder:
        result.save_best(f"{folder}/best.yaml")
        held, read = Fixed(**best).identity(), Fixed(f"{folder}/best.yaml").identity()
    assert read == held, f"its best.yaml has {read}, not {held}"
    algorithm = make if isinstance(make(), Algorithm) else FedAvg
    try:
        again = runs.run(algorithm, executor, callbacks=[Fixed(**best), _OneRound()])[0].result
    except (TypeError, ValueError) as error:
        raise AssertionError(f"its `best` does not go back in: {best}: {error}") from error
    assert json.loads(json.dumps(again.best)) == best, f"its own best is {again.best}, not {best}"
    for row in again.jobs:
        values = {**best["client"], **best.get("clients", {}).get(str(row["client"]), {})}
        other = {name: row[name] for name, value in values.items() if row[name] != value}
        assert not other, f"client {row['client']} trained with {other}, not with {values}"


def check_executor(make: Make, executor: Setting) -> None:
    """An executor's first round equals that of the sequential one up to the rounding of sums, without dropout."""
    with seeding.preserved():
        expected = runs.run(make, SEQUENTIAL, callbacks=[_OneRound()], dropout=0.0)
        found = runs.run(make, executor, callbacks=[_OneRound()], dropout=0.0)
    for name, tensor in expected[1].state_dict().items():
        apart = (tensor - found[1].state_dict()[name]).norm() / tensor.norm()
        assert apart < 1e-5, f"{name} is {apart:.1e} apart after a round, relatively"
    for theirs, own in zip(expected[0].result.jobs, found[0].result.jobs, strict=True):
        differing = [name for name in theirs if not runs.near(theirs[name], own[name])]
        assert not differing, f"the jobs differ in {', '.join(differing)}: {theirs}, {own}"
    assert expected[0].result.ledger == found[0].result.ledger, "the ledgers differ"


Rule = Callable[[Sequence[Tensor], Sequence[ClientResult], Mapping[str, float]], Sequence[Tensor]]
"""Returns new weights, from those that a round began with, the clients' results, and the server's hyperparameters."""


def check_aggregation(make: Callable[[], Algorithm], rule: Rule | None = None, executor: Setting = SEQUENTIAL) -> None:
    """The model after the first round is what a rule makes of the clients' models, computed apart from the run.

    Args:
        make: Makes the algorithm.
        rule: The method's rule, written down once more: ``rule(start, results, server)``. By default the server's
            optimizer takes one step along ``w - sum n_i w_i``, with ``n_i`` by the algorithm's ``weight``.
        executor: Runs the jobs.
    """
    seen = _FirstRound()
    algorithm: Algorithm = runs.run(make, executor, callbacks=[seen, _OneRound()])[0].algorithm
    expected = (rule or partial(_one_step, algorithm))(seen.start, seen.results, algorithm.server)
    assert len(seen.results) > 1, "fewer than two clients sent a model, so any mean would do"
    for place, (found, wanted) in enumerate(zip(seen.end, expected, strict=True)):
        apart = (found - wanted).norm() / (wanted - seen.start[place]).norm()
        what = "the rule" if rule else "a step of the server's optimizer along w - sum n_i w_i"
        assert apart < 1e-4, (
            f"weight {place} moved by something else than {what} says: {apart:.1e} apart, relatively. "
            "A method with another rule gives it to `check_aggregation(make, rule)`"
        )


def _one_step(
    algorithm: Algorithm, start: Sequence[Tensor], results: Sequence[ClientResult], server: Mapping[str, float]
) -> list[Tensor]:
    shares = [algorithm.weight(result) * result.job.weight for result in results]
    weights = [tensor.clone().requires_grad_() for tensor in start]
    for place, weight in enumerate(weights):
        models = [share * result.weights[place] for share, result in zip(shares, results, strict=True)]
        weight.grad = start[place] - torch.stack(models).sum(0) / sum(shares)
    algorithm.server_optimizer(weights, server).step()
    return [weight.detach() for weight in weights]


def check_identity(make: Make) -> None:
    """The identity is the same for two objects that are made alike, and survives JSON."""
    identity = make().identity()
    assert identity == make().identity(), "two that are made alike are taken for different ones"
    assert json.loads(json.dumps(identity, allow_nan=False)) == identity, "it does not survive JSON"


def check_hyperparameters(
    make: Callable[[], Algorithm],
    skip: Collection[str] = (),
    executor: Setting = SEQUENTIAL,
    client: Mapping[str, Any] | None = None,
) -> None:
    """Every hyperparameter that an algorithm declares changes the run, and is recorded as it was used.

    Values are halved (0 becomes 0.1), whole numbers raised by one: a limit that no client reaches has no effect.
    ``client`` has hyperparameters of local training without which another one has no effect.
    """
    algorithm, own = make(), dict(client or {})
    fixed: dict[str, Any] = {"client": own, "server": {}}
    sides: Sequence[tuple[Literal["client", "server"], Mapping[str, Any]]]
    sides = (("client", algorithm.client), ("server", algorithm.server))
    default = _models_and_scores(*runs.run(make, executor, callbacks=[Fixed(**fixed)])[:2])
    for side, name, value in [(side, *one) for side, values in sides for one in values.items() if one[0] not in skip]:
        other = _other_value(algorithm, side, name, value)
        tuner = Fixed(**{**fixed, side: {**fixed[side], name: other}})
        fed, module, _ = runs.run(make, executor, callbacks=[tuner])
        used = fed.result.jobs[name] if side == "client" else [fed.result.best["server"][name]]
        assert set(used) == {other}, f"{side} {name!r} was set to {other!r}, written down is {set(used)}"
        complaint = f"{side} {name!r} has no effect: {value!r} and {other!r} give the same run"
        assert _models_and_scores(fed, module) != default, complaint
        if side == "server":
            later = runs.run(make, executor, callbacks=[_ChangesServer(name, other)])
            assert _models_and_scores(*later[:2]) != default, f"{complaint} where a tuner changes it after a round"


def _models_and_scores(fed: FederatedLoop, module: ToyModule) -> list[Any]:
    return [runs.comparable(module.state_dict()), fed.result.history["score"]]


def _other_value(algorithm: Algorithm, side: Literal["client", "server"], name: str, value: Any) -> Any:
    """Return a value that the algorithm takes, too."""
    if not isinstance(value, int):
        return value / 2 or 0.1
    try:
        algorithm.check_values(side, {name: value + 1})
    except ValueError:
        return value - 1  # a switch
    return value + 1


class _ChangesServer(Tuner):
    """Changes a server hyperparameter after the first round."""

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._value = name, value

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        for arm in arms:
            arm.server[self._name] = self._value


class _FirstRound(Tuner):
    """Copies what the server begins the first round with, what it gets, and what it makes of it."""

    def __init__(self) -> None:
        self.start: list[Tensor] = []
        self.end: list[Tensor] = []
        self.results: list[ClientResult] = []

    def receive(self, arm: Arm, result: ClientResult) -> None:
        self.start = [tensor.detach().clone() for tensor in arm.weights]
        self.results.append(replace(result, weights=[tensor.detach().clone() for tensor in result.weights]))

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        self.end = [tensor.detach().clone() for tensor in arm.weights]


class _OneRound(Callback):
    """Stops after the first round."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = True
