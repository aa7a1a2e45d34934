"""How good an arm is on the clients' own examples: as the server has it, and fine-tuned on each client.

Global is the arm's model on every client's examples; personalized is that model after the client's own training with
the chosen configuration. Both are means over examples; the table of clients keeps what every client had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import processes, seeding
from lightning_fedhpo.arguments import whole
from lightning_fedhpo.data.sampling import uniform
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.run.scores import weighted_mean
from lightning_fedhpo.run.table import Table
from lightning_fedhpo.types import SPLITS, Config, Job

if TYPE_CHECKING:
    from lightning_fedhpo.data.federation import FederatedData

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
        super().__init__({kind: self._means(kind) for kind in ("global", "personalized")})

    @property
    def distribution(self) -> dict[str, dict[str, dict[str, float]]]:
        """The mean over clients, where every client counts alike, and percentiles over clients."""
        return {
            kind: {
                name: {
                    "mean": float(np.mean(values)),
                    **{f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES},
                }
                for name, values in self._columns(kind).items()
            }
            for kind in self
        }

    def _columns(self, kind: str) -> dict[str, list[float]]:
        prefix = f"{kind}/"
        return {
            column.removeprefix(prefix): [value for value in self.clients[column] if value is not None]
            for column in self.clients.columns
            if column.startswith(prefix)
        }

    def _means(self, kind: str) -> dict[str, float]:
        means = {}
        for name in self._columns(kind):
            rows = [row for row in self.clients if row[f"{kind}/{name}"] is not None]
            means[name] = weighted_mean([row[f"{kind}/{name}"] for row in rows], [row["examples"] for row in rows])
        return means


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


def check_evaluation(at: int | Sequence[int] | None) -> None:
    """Check numbers of rounds at which to test."""
    several = [] if at is None else at if isinstance(at, Sequence) else [at]
    whole("the length of `evaluate_at`", len(several), 0, 10**5)
    for one in several:
        whole("evaluate_at", one)


def online_figures(evaluation: Evaluation, arm: int) -> dict[str, float]:
    """Return what stands in the history of a test during the run."""
    figures = {f"test/{name}": value for name, value in evaluation["global"].items()}
    figures |= {f"test/{name}_personalized": value for name, value in evaluation["personalized"].items()}
    return figures | {"test/arm": arm}


def check_clients(clients: Any, sizes: np.ndarray[Any, Any], name: str = "clients") -> None:
    """Refuse clients to evaluate that do not exist or have no examples.

    Args:
        clients: All of them, a number of them, or their ids.
        sizes: Every client's number of examples.
        name: What the user calls them.
    """
    able = np.count_nonzero(sizes)
    if clients is None:
        return
    if isinstance(clients, str) or not isinstance(clients, Iterable):
        if whole(name, clients) > able:
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


def chosen_clients(clients: int | Sequence[int] | None, sizes: np.ndarray[Any, Any], seed: int) -> list[int]:
    """Return the ids of the clients to evaluate: those with examples, all or a number of them or those named."""
    check_clients(clients, sizes)
    able = np.flatnonzero(sizes)
    if isinstance(clients, Iterable):
        return [int(client) for client in clients]
    drawn = range(len(able)) if clients is None else uniform(seeding.rng(seed, seeding.EVALUATION), len(able), clients)
    return sorted(int(able[place]) for place in drawn)


class EvaluationCheck(Callback):
    """Refuse a test of clients after the run that cannot be made, before the first round.

    Args:
        clients: What the test will be asked for.
        name: What the user calls it.
    """

    def __init__(self, clients: Any, name: str) -> None:
        self._clients = clients
        self._name = name

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Look whether the clients are there."""
        data: FederatedData = trainer.datamodule  # type: ignore[attr-defined]  # as the loop has seen
        if stage == "fit" and (sizes := data.sizes("test")).any():
            check_clients(self._clients, sizes, self._name)


def evaluate_arm(
    executor: SequentialExecutor,
    arm: Arm,
    config: Callable[[int], Config],
    trainer: Trainer,
    module: LightningModule,
    data: FederatedData,
    split: Literal["train", "val", "test"],
    clients: int | Sequence[int] | None,
    seed: int,
) -> Evaluation:
    """Evaluate one arm's model on its clients."""
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}, got {split!r}.")
    stage = _stage(module, split)
    sizes = data.sizes(split)
    if not sizes.any():
        raise ValueError(f"no client has examples in the {split} split: raise its part of `fractions`.")
    table = Table()
    # What a client keeps to itself is its own: another federation's clients have the same numbers, not the same parts.
    known = data is executor.data or data.fingerprint() == executor.data.fingerprint()
    limit = private.evaluation_limit(trainer, stage)
    ids = chosen_clients(clients, sizes, seed)
    own = processes.share([arm.index] * len(ids), [int(sizes[client]) for client in ids], processes.world())[
        processes.rank()
    ]
    rows: dict[int, Mapping[str, Any]] = {}
    failed: dict[int, str] = {}
    with processes.together("an evaluation") as answers, seeding.preserved(), private.fitting(trainer, module):
        for place in own:
            job = Job(arm.rounds, arm.index, ids[place], config(ids[place]))
            try:
                rows[place] = _evaluate_client(executor, data, job, arm, stage, split, seed, known, limit)
            except Exception as error:
                failed[place] = f"client {job.client} failed when it was tested: {type(error).__name__}: {error}"
                if executor.on_error == "raise":
                    raise RuntimeError(
                        f'{failed[place]}. With FederatedLoop(on_error="drop") it is left out.'
                    ) from error
        answers.own = rows, failed
    for found, missing in answers.all:
        rows |= found
        failed |= missing
    for _, message in sorted(failed.items()):
        rank_zero_warn(f"{message}. It is left out.")
    if not rows:
        raise RuntimeError(f"all {len(ids)} clients failed when they were tested: there is nothing to tell of them.")
    for place in sorted(rows):
        table.append(rows[place])
    return Evaluation(table)


def _evaluate_client(
    executor: SequentialExecutor,
    data: FederatedData,
    job: Job,
    arm: Arm,
    stage: str,
    split: str,
    seed: int,
    known: bool,
    limit: int | float,
) -> Mapping[str, Any]:
    local = executor.local
    executor.prepare(job, arm, known)
    examples = data.examples(job.client, split)
    draw = seeding.key(seed, seeding.EVALUATION, job.round, job.arm, job.client)
    seeding.seed_user_code(draw)
    row: dict[str, Any] = {"client": job.client, "examples": len(examples)}
    row |= {f"global/{name}": value for name, value in local.evaluate(examples, stage, limit).items()}
    seeding.seed_user_code(draw)
    executor.train(data, job.client, draw)
    local.recorder.finish()
    return row | {f"personalized/{name}": value for name, value in local.evaluate(examples, stage, limit).items()}


def _stage(module: LightningModule, split: str) -> str:
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
