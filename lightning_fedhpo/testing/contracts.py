"""The contracts that every algorithm, tuner and search keeps, as functions that raise ``AssertionError``.

Each takes a function that makes a new object of the kind under test, as often as it needs one, and runs the toy
federation with it, by any of the executors.
"""

from __future__ import annotations

import inspect
import json
import math
import random
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.partition import Natural
from lightning_fedhpo.executors.settings import Sequential, Setting
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.divergence import DivergedError
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.searches.random import RandomSearch
from lightning_fedhpo.space.dimensions import Float, Int
from lightning_fedhpo.space.search_space import Choice, SearchSpace
from lightning_fedhpo.testing.toy import ToyModule, quiet_trainer, toy_data, toy_tensors
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.fixed import Fixed
from lightning_fedhpo.types import RoundContext

Subject = Algorithm | Tuner | Search
"""What is under test."""

Make = Callable[[], Subject]
"""Makes a new one: two of the same call are set alike and know nothing of each other."""

Kind = TypeVar("Kind", bound=Subject)

SEQUENTIAL = Sequential()
ROUNDS = 4
COHORT = 3
_CLIENTS = 4
_SCHEDULE = [{"server": {"lr": 1 / number}, "client": {"lr": 0.2 / number, "momentum": 0.5}} for number in (1, 2, 3, 4)]
_FEW: Mapping[str, Any] = {
    "trajectory": _SCHEDULE,
    "configs": 4,
    "budget": 8,
    "max_rounds": 4,
    "eta": 2,
    "eliminations": 2,
}


def toy_space() -> SearchSpace:
    """Return a space that the toy module has: one dimension of each sort."""
    return SearchSpace(
        client={"lr": Float(1e-3, 0.5, log=True), "momentum": Float(0.0, 0.9), "batch_size": Int(4, 16)},
        server={"lr": Float(0.1, 1.0, log=True), "momentum": Float(0.0, 0.5)},
    )


def toy_choices() -> SearchSpace:
    """Return a part of the toy space whose values are listed."""
    return SearchSpace(
        client={"lr": Choice([0.01, 0.1, 0.4]), "momentum": Choice([0.0, 0.9]), "batch_size": Choice([8])}
    )


def toy_instance(kind: Callable[..., Kind]) -> Kind:
    """Make an object of a class as a toy run wants it: the toy space, few configurations, a small budget.

    >>> from lightning_fedhpo import FedEx
    >>> toy_instance(FedEx).client_names
    ('lr', 'momentum', 'batch_size')
    """
    known = {"space": toy_choices() if getattr(kind, "lists_values", False) else toy_space(), **_FEW}
    parameters = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in known.items() if name in parameters})


def check_same_seed(make: Make, executor: Setting = SEQUENTIAL) -> None:
    """The same seed is the same run, whatever the global generators are at; another seed is another run."""
    with seeding.preserved():
        seeding.seed_user_code(1)
        first = _outcome(*_run(make, executor))
        seeding.seed_user_code(2)
        before = _generators()
        second = _outcome(*_run(make, executor))
        after = _generators()
    _equal(first, second, "the same seed gave two runs that differ in")
    moved = [name for name in before if before[name] != after[name]]
    assert not moved, f"the run has drawn from the global generator of {', '.join(moved)}"
    assert first["the model"] != _outcome(*_run(make, executor, seed=1))["the model"], (
        "another seed gave the same model"
    )


def check_resume(make: Make, executor: Setting = SEQUENTIAL) -> None:
    """A run resumed from any checkpoint, of a round's end or from inside one, is bitwise the run that never stopped."""
    with tempfile.TemporaryDirectory() as folder:
        whole = _outcome(*_run(make, executor, callbacks=[_SaveAlways(Path(folder))]))
        paths = sorted(Path(folder).iterdir())
        assert paths, "nothing was saved"
        for path in paths:
            checkpoint = torch.load(path, weights_only=True)
            strange = _strange(checkpoint["callbacks"])
            assert not strange, f"a checkpoint holds what is no tensor, number, string or container: {strange[:3]}"
            _equal(
                whole, _outcome(*_run(make, executor, ckpt_path=path)), f"resumed from {path.stem}, the run differs in"
            )


def check_nan_survives(make: Make, executor: Setting = SEQUENTIAL) -> None:
    """A client that diverges is left out and counted.

    A round in which all diverge leaves the model as it was; the run goes on after it, and ends where it is the first.
    """
    rounds = _rounds(make())
    fed, module, messages = _sick_run(make, executor, {1})
    assert all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values()), "nan reached the weights"
    assert fed.result.history["dropped"] == [1] * len(fed.result.history), "a client that diverged was not left out"
    assert any(f"of {_CLIENTS}" in text or "clients of round" in text for text in messages), "nothing was said"
    assert all(math.isfinite(score) for arm in fed.result.arms for score in arm["scores"]), "nan reached a score"
    json.dumps(fed.result.best, allow_nan=False)
    start = {name: tensor.clone() for name, tensor in ToyModule().state_dict().items()}
    with seeding.preserved():
        module = ToyModule(dropout=0.2)
    try:
        _sick_run(make, executor, set(range(_CLIENTS)), module=module)
    except DivergedError as error:
        assert "data is at fault" in str(error), f"something else is taken for the reason: {error}"
    else:
        raise AssertionError("a run that never trains did not end")
    assert all(torch.equal(start[name], tensor) for name, tensor in module.state_dict().items()), "the model changed"
    fed, module, _ = _sick_run(make, executor, set(range(_CLIENTS)), number=1)
    assert all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values()), "nan reached the weights"
    assert len({row["round"] for row in fed.result.history}) == rounds, "the run did not go on"
    assert all((row["dropped"] == row["clients"]) is (row["round"] == 1) for row in fed.result.history)
    json.dumps(fed.result.best, allow_nan=False)


def check_suggestions(make: Make, space: SearchSpace | None = None, executor: Setting = SEQUENTIAL) -> None:
    """Every client trains, and every server aggregates, with a point of the space; so does what is deployed."""
    space = space or toy_space()
    fed, _, _ = _run(make, executor)
    subject = make()
    clients = set(space.client) if isinstance(subject, Search) else set(subject.client_names) & set(space.client)  # type: ignore[union-attr]  # an algorithm suggests nothing
    assert clients, "nothing of the space is tuned"
    best = fed.result.best
    rows = [*fed.result.jobs, *best.get("clients", {0: best["client"]}).values()]
    wrong = [(name, row[name]) for row in rows for name in clients if row[name] not in space.client[name]]
    assert not wrong, f"outside of the space: {wrong[:3]}"
    if isinstance(subject, Search):
        servers = [(name, arm["server"][name]) for arm in fed.result.arms for name in space.server]
        outside = [(name, value) for name, value in servers if value not in space.server[name]]
        assert not outside, f"outside of the space: {outside[:3]}"


def check_executor(make: Make, executor: Setting) -> None:
    """An executor gives what the sequential one gives, up to the rounding of sums: one round, without dropout."""
    with seeding.preserved():
        expected = _run(make, SEQUENTIAL, callbacks=[_OneRound()], dropout=0.0)
        found = _run(make, executor, callbacks=[_OneRound()], dropout=0.0)
    for name, tensor in expected[1].state_dict().items():
        apart = (tensor - found[1].state_dict()[name]).norm() / tensor.norm()
        assert apart < 1e-5, f"{name} is {apart:.1e} apart after a round, relatively"
    for theirs, own in zip(expected[0].result.jobs, found[0].result.jobs, strict=True):
        differing = [name for name in theirs if not _near(theirs[name], own[name])]
        assert not differing, f"the jobs differ in {', '.join(differing)}: {theirs}, {own}"
    assert expected[0].result.ledger == found[0].result.ledger, "the ledgers differ"


def check_identity(make: Make) -> None:
    """What a checkpoint must agree with is plain, the same for two made alike, and survives JSON."""
    identity = make().identity()
    assert identity == make().identity(), "two that are made alike are taken for different ones"
    assert json.loads(json.dumps(identity, allow_nan=False)) == identity, "it does not survive JSON"


def check_hyperparameters(
    make: Callable[[], Algorithm], skip: Collection[str] = (), executor: Setting = SEQUENTIAL
) -> None:
    """Every hyperparameter that an algorithm declares changes the run, and is written down as it was used."""
    algorithm = make()
    default = _run(make, executor)[1].state_dict()
    sides: Sequence[tuple[str, Mapping[str, Any]]] = (("client", algorithm.client), ("server", algorithm.server))
    for side, values in sides:
        for name, value in values.items():
            if name in skip:
                continue
            other = _other(value)
            fed, module, _ = _run(make, executor, callbacks=[Fixed(**{side: {name: other}})])
            used = fed.result.jobs[name] if side == "client" else [fed.result.best["server"][name]]
            assert set(used) == {other}, f"{side} {name!r} was set to {other!r}, written down is {set(used)}"
            complaint = f"{side} {name!r} has no effect: {value!r} and {other!r} give the same run"
            assert _differs(default, module), complaint
            if side == "server":
                later = _run(make, executor, callbacks=[_ChangesServer(name, other)])[1]
                assert _differs(default, later), f"{complaint} where a tuner changes it after a round"


def _differs(default: Mapping[str, Tensor], module: ToyModule) -> bool:
    return not all(torch.equal(default[key], tensor) for key, tensor in module.state_dict().items())


class _ChangesServer(Tuner):
    """Changes a server hyperparameter after the first round."""

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._value = name, value

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        for arm in arms:
            arm.server[self._name] = self._value


class _OneRound(Callback):
    """Stops after the first round."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = True


class _Spoils(Callback):
    """Has examples be others in one round."""

    def __init__(self, number: int, examples: Tensor, others: Tensor) -> None:
        self._number, self._examples = number, examples
        self._contents = {True: others, False: examples.clone()}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._examples.copy_(self._contents[trainer.current_epoch == self._number])


class _SaveAlways(Callback):
    """Saves at the end of every round, and after its second job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 1:
            trainer.save_checkpoint(self._folder / f"round {trainer.current_epoch}, inside.ckpt")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self._folder / f"round {trainer.current_epoch}, end.ckpt")


def _run(
    make: Make,
    executor: Setting,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    ckpt_path: Path | None = None,
    data: FederatedData | None = None,
    cohort: int = COHORT,
    dropout: float = 0.2,
    module: ToyModule | None = None,
) -> tuple[FederatedLoop, ToyModule, Trainer]:
    subject = make()
    data = data or toy_data()
    more: dict[str, Any] = {}
    if isinstance(subject, Tuner) and subject.needs_everyone:
        cohort, more = len(data), {"server_data": toy_tensors(30)}
    method = subject if isinstance(subject, Algorithm) else None
    fed = FederatedLoop(method, cohort, seed=seed, executor=executor, **more)
    own = [] if isinstance(subject, Algorithm) else [subject, *_population(subject)]
    with seeding.preserved():  # a new layer draws its weights
        module = module or ToyModule(dropout=dropout)
    trainer = quiet_trainer(_rounds(subject), fed, *own, *callbacks)
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return fed, module, trainer


def _population(subject: Tuner | Search) -> list[Search]:
    """Return a search of three arms beside a tuner that acts between arms, which is one that changes server values."""
    acts = isinstance(subject, Tuner) and subject.space is not None and subject.server_names
    return [RandomSearch(toy_space(), budget=3 * ROUNDS, max_rounds=ROUNDS)] if acts else []


def _rounds(subject: Subject) -> int:
    return max(ROUNDS, subject.rounds) if isinstance(subject, Search) else ROUNDS


def _sick_run(
    make: Make,
    executor: Setting,
    sick: Collection[int],
    number: int | None = None,
    module: ToyModule | None = None,
) -> tuple[FederatedLoop, ToyModule, list[str]]:
    """Run with clients whose examples are nan, in one round or in all of them; return what warnings say, too."""
    x, y = toy_tensors(20 * _CLIENTS)
    owner = torch.arange(len(x)) % _CLIENTS
    spoilt = x.clone()
    for client in sick:
        spoilt[owner == client] = math.nan
    data = FederatedData((x if number is not None else spoilt, y), Natural(owner), batch_size=8)
    spoils = [] if number is None else [_Spoils(number, x, spoilt)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fed, module, _ = _run(make, executor, callbacks=spoils, data=data, cohort=_CLIENTS, module=module)
    return fed, module, [str(warning.message) for warning in caught]


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value / 2 if value else 0.1


def _outcome(fed: FederatedLoop, module: ToyModule, trainer: Trainer) -> dict[str, Any]:
    states = {callback.state_key: state for callback in trainer.callbacks if (state := callback.state_dict())}  # type: ignore[attr-defined]  # Trainer sets it
    result = fed.result
    return {
        "the model": _plain(module.state_dict()),
        "history": repr(result.history.to_dict()),
        "jobs": repr(result.jobs.to_dict()),
        "ledger": result.ledger,
        "best": repr(result.best),
        "arms": repr(result.arms),
        "progress": (trainer.current_epoch, trainer.global_step),
        "saved states": _plain(states),
    }


def _equal(one: Mapping[str, Any], other: Mapping[str, Any], complaint: str) -> None:
    differing = [name for name in one if one[name] != other[name]]
    assert not differing, f"{complaint} {', '.join(differing)}"


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _plain(value: Any) -> Any:
    """Return nested containers with tensors as bytes and numbers in full, so that nan equals nan."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return repr(value)


def _strange(value: Any, place: str = "") -> list[str]:
    if isinstance(value, dict):
        return [found for key, one in value.items() for found in _strange(one, f"{place}/{key}")]
    if isinstance(value, list | tuple):
        return [found for number, one in enumerate(value) for found in _strange(one, f"{place}/{number}")]
    return [] if isinstance(value, Tensor | int | float | str | None) else [f"{place}: {type(value).__name__}"]


def _generators() -> dict[str, Any]:
    numpy: Any = np.random.get_state(legacy=False)["state"]
    return {
        "torch": _plain(torch.get_rng_state()),
        "numpy": (numpy["key"].tobytes(), numpy["pos"]),
        "Python": random.getstate(),
    }
