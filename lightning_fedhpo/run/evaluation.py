"""How good an arm is on the clients' own examples: as the server has it, and fine-tuned on each client.

Global is the arm's model on every client's examples; personalized is that model after the client's own training with
the chosen configuration. Both are means over examples; the table of clients keeps what every client had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import machine, processes, seeding
from lightning_fedhpo.arguments import whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.scores import weighted_mean
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.sampling import draw_cohort
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.files.table import Table
from lightning_fedhpo.run.run_parts import RunParts
from lightning_fedhpo.types import SPLITS, Job

PERCENTILES = (10, 50, 90)


class Evaluation(dict[str, dict[str, float]]):
    """``{"global": {metric: value}, "personalized": {metric: value}}``, means over examples.

    Attributes:
        clients: One row a client: ``client``, ``examples``, ``global/<metric>``, ``personalized/<metric>``.

    Example:
        >>> rows = Table({"examples": [3, 1], "global/acc": [1.0, 0.0], "personalized/acc": [1.0, 1.0]})
        >>> evaluation = Evaluation(rows)
        >>> evaluation["global"], evaluation.distribution["global"]["acc"]["mean"]
        ({'acc': 0.75}, 0.5)
    """

    def __init__(self, clients: Table) -> None:
        self.clients = clients
        super().__init__(
            {
                kind: {name: weighted_mean(*cells) for name, cells in self._columns(kind).items()}
                for kind in ("global", "personalized")
            }
        )

    @property
    def distribution(self) -> dict[str, dict[str, dict[str, float]]]:
        """The mean over clients, every client weighted equally, and percentiles over clients."""
        return {
            kind: {
                name: {
                    "mean": float(np.mean(values)),
                    **{f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES},
                }
                for name, (values, _) in self._columns(kind).items()
            }
            for kind in self
        }

    def _columns(self, kind: str) -> dict[str, tuple[list[float], list[float]]]:
        """Return every metric's values, with the numbers of examples behind them."""
        found = {}
        for column in self.clients.columns:
            if column.startswith(f"{kind}/"):
                rows = [row for row in self.clients if row[column] is not None]
                cells = [row[column] for row in rows], [row["examples"] for row in rows]
                found[column.removeprefix(f"{kind}/")] = cells
        return found


def due(at: int | Sequence[int] | None, before: int, now: int) -> bool:
    """Whether a test is due after a round that raised the rounds spent from one number to another.

    >>> due(10, 8, 11), due(10, 11, 14), due([12, 30], 8, 11), due([12, 30], 11, 14)
    (True, False, False, True)
    """
    if at is None:
        return False
    if not isinstance(at, Iterable):
        return now // at > before // at
    return any(before < number <= now for number in at)


def online_test(parts: RunParts, arm: Arm, executor: Executor, before: int, now: int) -> dict[str, float]:
    """Test an arm if a test is due, and return its figures for the history; see :func:`due`."""
    options = parts.options
    if not due(options.evaluate_at, before, now):
        return {}
    evaluation = evaluate(parts, arm, executor, parts.data, "test", options.evaluate_clients)
    figures = {f"test/{name}": value for name, value in evaluation["global"].items()}
    figures |= {f"test/{name}_personalized": value for name, value in evaluation["personalized"].items()}
    return figures | {"test/arm": arm.index}


def check_clients(clients: Any, sizes: np.ndarray[Any, Any], name: str = "clients") -> None:
    """Refuse clients to evaluate that do not exist or have no examples."""
    if clients is None:
        return
    if isinstance(clients, str) or not isinstance(clients, Iterable):
        if whole(name, clients) > (able := np.count_nonzero(sizes)):
            raise ValueError(f"`{name}` must be from 1 to {able}, the clients with examples; got {clients}.")
        return
    wrong = [one for one in clients if whole(f"an id in `{name}`", one, 0) >= len(sizes) or not sizes[one]]
    if wrong:
        raise ValueError(
            f"`{name}` must be clients with examples, but {wrong[:5]} have none in this split or do not exist: leave "
            "them out."
        )
    if not list(clients):
        raise ValueError(f"`{name}` names nobody: leave it out for all, or name some.")


def _chosen_clients(
    clients: int | Sequence[int] | None, sizes: np.ndarray[Any, Any], split: str, seed: int
) -> list[int]:
    if not sizes.any():
        raise ValueError(f"no client has examples in the {split} split: raise its part of `fractions`.")
    check_clients(clients, sizes)
    able = np.flatnonzero(sizes)
    if isinstance(clients, Iterable):
        return [int(client) for client in clients]
    draw = seeding.rng(seed, seeding.EVALUATION)
    drawn = range(len(able)) if clients is None else draw_cohort(draw, len(able), clients)
    return sorted(int(able[place]) for place in drawn)


class EvaluationCheck(Callback):
    """Refuse a test of clients after the run that cannot be made, before the first round."""

    def __init__(self, clients: Any, name: str) -> None:
        self._clients, self._name = clients, name

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Look whether the clients are there."""
        data: FederatedData = trainer.datamodule  # type: ignore[attr-defined]  # as the loop has seen
        if stage == "fit" and (sizes := data.sizes("test")).any():
            check_clients(self._clients, sizes, self._name)


def evaluate(
    parts: RunParts,
    arm: Arm,
    executor: Executor,
    data: FederatedData,
    split: Literal["train", "val", "test"],
    clients: int | Sequence[int] | None,
    *,
    trainer: Trainer | None = None,
) -> Evaluation:
    """Evaluate one arm's model on clients; the module holds the last of them afterwards.

    A ``trainer`` other than the run's limits the examples of a client.
    """
    trainer = trainer or parts.trainer
    # Client state belongs to its federation; ignore it elsewhere.
    known = data is parts.data or data.fingerprint() == parts.data.fingerprint()
    if not known and parts.clients_of(arm):
        raise ValueError(
            "this run has a configuration for each client of its federation, got another federation: evaluate on the "
            "run's own."
        )
    stage, sizes = _stage(parts.module, split), data.sizes(split)
    ids = _chosen_clients(clients, sizes, split, parts.options.seed)
    score = partial(executor.bench.local.evaluate, stage=stage, limit=private.evaluation_limit(trainer, stage))
    test = partial(_tested, parts, arm, executor.bench, data, lambda client: score(data.examples(client, split)))
    costs = [int(sizes[client]) for client in ids]
    own = processes.divide_jobs([arm.index] * len(ids), costs, processes.world())[processes.rank()]
    with (
        machine.threads(executor.threads),
        processes.fail_together("an evaluation") as answers,
        seeding.preserved(),
        private.fitting(trainer, parts.module),
    ):
        answers.own = {
            place: _row_or_error(ids[place], costs[place], partial(test, known=known), parts.options.on_error)
            for place in own
        }
    return Evaluation(_table(item for one in answers.all for item in one.items()))


def _row_or_error(
    client: int, examples: int, test: Callable[[int], dict[str, Any]], on_error: str
) -> dict[str, Any] | str:
    """Return a client's row, or why there is none."""
    try:
        return {"client": client, "examples": examples, **test(client)}
    except Exception as error:
        told = f"client {client} failed when it was tested: {type(error).__name__}: {error}"
        if on_error == "raise":
            raise RuntimeError(f'{told}. With FederatedLoop(on_error="drop") it is left out.') from error
        return told


def _table(found: Iterable[tuple[int, dict[str, Any] | str]]) -> Table:
    table, failed = Table(), 0
    for _, row in sorted(found, key=itemgetter(0)):
        if isinstance(row, str):
            rank_zero_warn(f"{row}. It is left out.")
            failed += 1
        else:
            table.append(row)
    if not len(table):
        raise RuntimeError(f"all {failed} clients failed when they were tested: there is nothing to tell of them.")
    return table


def _tested(
    parts: RunParts,
    arm: Arm,
    bench: Workbench,
    data: FederatedData,
    score: Callable[[int], Mapping[str, float]],
    client: int,
    *,
    known: bool,
) -> dict[str, Any]:
    """Return the metrics of an arm's model on a client, before and after it is trained there."""
    seed = parts.options.seed
    deployed = parts.tuner_of(arm).deployed(arm, client, seed)
    bench.prepare(Job(arm.rounds, arm.index, client, {**arm.config_of(client), **deployed}), arm, known)
    draw = seeding.key(seed, seeding.EVALUATION, arm.rounds, arm.index, client)
    seeding.seed_user_code(draw)
    row = {f"global/{name}": value for name, value in score(client).items()}
    seeding.seed_user_code(draw)
    bench.train(data, client, draw, sends=False)
    return row | {f"personalized/{name}": value for name, value in score(client).items()}


def _stage(module: LightningModule, split: str) -> str:
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}, got {split!r}.")
    if split == "test" and private.is_overridden("test_step", module):
        return "test"
    if not private.is_overridden("validation_step", module):
        raise ValueError(
            f"{type(module).__name__} has neither a `validation_step` nor, for the test split, a `test_step`: add one "
            "to evaluate it."
        )
    if split == "test":
        rank_zero_info(f"{type(module).__name__} has no `test_step`: its `validation_step` runs on the test examples.")
    return "validation"
