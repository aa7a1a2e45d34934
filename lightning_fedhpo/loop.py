"""The round of a federated run, as a callback: drop it into a Trainer and the module is trained on many clients."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import checks, seeding
from lightning_fedhpo.algorithms import Algorithm, FedAvg
from lightning_fedhpo.arm import Arm
from lightning_fedhpo.binding import LocalOptimizers
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.sampling import uniform
from lightning_fedhpo.evaluation import Evaluation, check_evaluation, due, evaluate_arm, online_figures
from lightning_fedhpo.ledger import Ledger
from lightning_fedhpo.preparation import Prepared, Settings, prepare, tuned
from lightning_fedhpo.result import Result
from lightning_fedhpo.rounds import by_round, job_row, ledger_row, round_figures, round_row, round_score
from lightning_fedhpo.searches.base import Draft, Search
from lightning_fedhpo.tracking import curves
from lightning_fedhpo.tracking.tables import Cell, Table
from lightning_fedhpo.tuners.base import Tuner, Untuned
from lightning_fedhpo.types import ClientResult, Job, RoundContext


class FederatedLoop(Callback):
    """Turn ``Trainer.fit`` into a simulated federated run.

    An epoch is a round, a batch is one client's job: the progress bar shows the jobs of a round, ``max_epochs`` bounds
    the rounds, and checkpoints, early stopping, timers and loggers work as they always do. The module stays as it is;
    after ``fit`` it holds the best arm's global model.

    Args:
        algorithm: The federated method; :class:`~lightning_fedhpo.FedAvg` by default.
        cohort: How many clients take part in a round, drawn anew for each.
        monitor: The score, among what the module's ``validation_step`` logs or returns; None trains without scores.
        mode: ``"min"`` or ``"max"``: which scores are better.
        target: ``"personalized"`` scores a client's model after its local training, ``"global"`` before it.
        executor: What runs the jobs: ``"sequential"``, or ``"auto"`` to choose.
        epochs: Local epochs of a job, where no tuner sets them.
        seed: Every random draw of the run is a function of it.
        score_before: Score clients also before they train, for the global figures of every round; by default where
            the target or the tuner needs it. It costs one more pass over the validation examples.
        evaluate_at: Test the best arm so far, global and personalized, whenever so many rounds have been spent by all
            arms together: every so many, or at these numbers. It stands in ``history``, under ``test/``; the ledger
            does not count it, since it is the experimenter's and not the method's.
        evaluate_clients: How many clients such a test takes, drawn once; all by default.
        on_error: What a client whose training raises does to the run: ``"raise"``, or ``"drop"`` to go on without it.
        verify: Prove before the first round that every hyperparameter takes effect, by training one client a few steps.

    Example:
        >>> import lightning as L
        >>> from lightning_fedhpo import FederatedLoop
        >>> from lightning_fedhpo.testing import toy_data, ToyModule
        >>> fed = FederatedLoop(cohort=2)
        >>> trainer = L.Trainer(max_epochs=2, callbacks=[fed], logger=False, enable_checkpointing=False,
        ...                     enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(ToyModule(), datamodule=toy_data())
        >>> fed.result.ledger["client_updates"]
        4
    """

    is_federated_loop = True

    def __init__(
        self,
        algorithm: Algorithm | None = None,
        cohort: int = 10,
        monitor: str | None = "val_loss",
        mode: Literal["min", "max"] = "min",
        target: Literal["personalized", "global"] = "personalized",
        executor: Literal["auto", "sequential"] = "auto",
        *,
        epochs: int = 1,
        seed: int = 0,
        score_before: bool | None = None,
        evaluate_at: int | Sequence[int] | None = None,
        evaluate_clients: int | None = None,
        on_error: Literal["raise", "drop"] = "raise",
        verify: bool = True,
    ) -> None:
        choices = (("mode", mode, ("min", "max")), ("target", target, ("personalized", "global")))
        choices += (("executor", executor, ("auto", "sequential")), ("on_error", on_error, ("raise", "drop")))
        for name, value, allowed in choices:
            if value not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
        for name, number in (("cohort", cohort), ("epochs", epochs)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"`{name}` must be a whole number of at least 1, got {number!r}.")
        if algorithm is not None and not isinstance(algorithm, Algorithm):
            raise TypeError(f"`algorithm` must be an Algorithm such as FedAvg(), got {algorithm!r}.")
        if monitor is None and target == "global":
            raise ValueError('`target="global"` names a score, which `monitor=None` does without: name a monitor.')
        check_evaluation(evaluate_at)
        self.algorithm = algorithm or FedAvg()
        self.cohort = cohort
        self.monitor = monitor
        self.mode = mode
        self.target = target
        self.executor = executor
        self.epochs = epochs
        self.seed = seed
        self.on_error = on_error
        self.verify = verify
        self.evaluate_at = evaluate_at
        self.evaluate_clients = evaluate_clients
        self._score_before = score_before
        self._saved: dict[str, Any] | None = None
        self._prepared: Prepared | None = None
        self._release: Callable[[], None] | None = None
        self._forget()

    def _forget(self) -> None:
        self.arms: list[Arm] = []
        self.ledger = Ledger()
        self._history, self._jobs_table = Table(), Table()
        self._jobs: list[Job] = []
        self._dropped: list[ClientResult] = []
        self._rows: dict[int, dict[str, Cell]] = {}
        self._metrics: dict[str, float] = {}
        self._start: list[Tensor] = []
        self._in_round = False
        self._torn = False  # between what an arm was and what it becomes: nothing can go on from there

    # ------------------------------------------------------------------ the round

    def begin_round(self, number: int) -> Sequence[Job]:
        """Draw every live arm's cohort and let the tuner choose each client's configuration."""
        self._context = RoundContext(number, self.seed, self._needs_before, self._sign)
        self._jobs, self._dropped, self._in_round = [], [], True
        if self.search is not None:
            self._start_arms(self.search.begin(self.arms, self._context))
        for arm in self.live:
            if arm.index in self._rows:  # a checkpoint from inside the round had it done already
                continue
            arm.discard()
            draw = seeding.rng(self.seed, seeding.COHORT, number, arm.index)
            cohort = [int(client) for client in uniform(draw, len(self.data), self.cohort)][: self._job_limit]
            suggestions = self.tuner.suggest(arm, cohort, self._context)
            self._jobs += [
                Job(number, arm.index, client, {**arm.client, **suggestion.config}, suggestion.index)
                for client, suggestion in zip(cohort, suggestions, strict=True)
            ]
        return self._jobs

    def results(self) -> Generator[ClientResult]:
        """Run the jobs, arm by arm.

        A result goes into its arm's sums as it comes, and an arm is aggregated when its last result is in: memory
        grows neither with the cohort nor, but for their weights, with the arms.
        """
        assert self._prepared is not None
        arms = {arm.index: arm for arm in self.live}
        results: list[ClientResult] = []
        with seeding.preserved():
            for result in self._prepared.executor.run(self._jobs, arms, self._context):
                arm = arms[result.job.arm]
                if results and results[0].job.arm != arm.index:
                    self._close(arms[results[0].job.arm], results)
                    results = []
                if result.finite:
                    arm.add(result, self.algorithm.weight(result))
                results.append(result)
                yield result
        if results:
            self._close(arms[results[0].job.arm], results)

    def end_round(self) -> None:
        """Let tuner and search act between arms, write the round down, and show the best arm in the module."""
        self._warn_of_dropped()
        self._torn = True
        live, rows = self.live, self._rows
        self.tuner.evolve(live, self._context)
        for arm in live:
            rows[arm.index] |= ledger_row(self.ledger) | dict(self.tuner.figures(arm))
        if self.search is not None:
            for arm in self.search.end(self.arms, self._context):
                arm.eliminate(arm.rounds)
        # A best arm that rests since an earlier round has no row in this one: the first stands in for it.
        row = rows.get(self.best_arm.index) or next(iter(rows.values()))
        row["best"] = True
        if due(self.evaluate_at, self.ledger.rounds - len(live), self.ledger.rounds):
            row |= self._online_figures()
        for row in rows.values():
            row["arms/live"] = len(self.live)
            self._history.append(row)
        self._metrics = round_figures(list(rows.values()), self.monitor)
        self._rows, self._in_round, self._torn = {}, False, False
        self._show_best()

    def publish(self) -> None:
        """Log the round's figures, where callbacks and loggers look for them."""
        figures = self._metrics | curves.by_budget(self._metrics, self.monitor)
        private.publish(self._trainer, figures, self.monitor)
        if self._context.round == 0:
            curves.log_configurations(self._trainer, self.result.configs)

    # ------------------------------------------------------------------ Lightning's hooks

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check everything that can be checked, and put the federated loop in the Trainer's place."""
        if stage != "fit":
            return
        checks.check_trainer(trainer, self.monitor)
        checks.check_module(pl_module, self.monitor)
        self.tuner = checks.only(trainer, Tuner) or Untuned()
        self.search = checks.only(trainer, Search)
        self.data = checks.federated_data(trainer)
        if self.cohort > len(self.data):
            raise ValueError(
                f"`cohort` is {self.cohort}, but the federation has {len(self.data)} clients: take a smaller cohort, or "
                "split the data among more clients."
            )
        if not isinstance(trainer.fit_loop, private.RoundsLoop):
            self._forget()
        elif self._prepared is not None and self.arms:
            checks.check_continued(self._prepared, pl_module, self.data, self._torn)
        self._trainer, self._saved = trainer, None
        self._job_limit = int(trainer.fast_dev_run) or sys.maxsize
        self._needs_before = (
            (self.target == "global" or self.tuner.needs_before) if self._score_before is None else self._score_before
        ) and self.monitor is not None
        if self.search is not None:
            self.search.leave(self.tuner.client_names, self.tuner.server(0, self.seed))
            checks.check_rounds(trainer, self.search)
            self.algorithm.check("server", self.search.server_names)
        self.algorithm.check("server", list(self.tuner.server(0, self.seed)))
        private.install(trainer, self)
        self._release = private.guard_loading(
            pl_module,
            lambda checkpoint: checks.check_checkpoint(checkpoint, self.state_key, self._identity()),
            lambda checkpoint: checks.check_tensors(checkpoint["state_dict"], pl_module),
        )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the optimizers as their author made them, before a checkpoint is loaded into them."""
        self._end_guard()
        self._optimizers = LocalOptimizers(trainer.optimizers, [c.scheduler for c in trainer.lr_scheduler_configs])

    def start(self, trainer: Trainer, module: LightningModule) -> None:
        """Try the module, make the arms, or take up those of a checkpoint."""
        if self._saved is not None:
            checks.check_identity(self._saved["identity"], self._identity())
        settings = Settings(
            seed=self.seed,
            epochs=self.epochs,
            monitor=self.monitor,
            on_error=self.on_error,
            verify=self.verify,
        )
        saved = self._saved or {}
        with seeding.preserved():
            self._prepared = prepare(
                trainer,
                module,
                self.data,
                self.algorithm,
                tuned(self.tuner, self.search, self.seed),
                self._optimizers,
                settings,
                saved.get("moving"),
            )
        state = self._prepared.executor.state
        if saved:
            for tensor, kept in zip(state.initial_personal, saved["initial_personal"], strict=True):
                tensor.copy_(kept)
            self._restore(saved)
        elif not self.arms:
            self._start = [tensor.detach().clone() for tensor in (*state.weights, *state.buffers)]
            if self.search is None:
                self._start_arms([Draft({}, {})])
        self._saved = None
        if self.arms:
            self._show_best()
        if not trainer.barebones:
            curves.begin(trainer, self._earlier())

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the best arm's model and hyperparameters in the module."""
        if self.arms:
            curves.log_configurations(trainer, self.result.configs)
        if self._prepared is not None and self.arms:
            self._prepared.executor.binding.apply(self._chosen(self.best_arm))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take a client's half-trained model out of the module."""
        self._end_guard()
        if self._prepared is not None and self.arms:
            self._show_best()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add what the algorithm adds to the gradients, where Lightning's own loops train."""
        if self._prepared is not None and self.algorithm.changes_gradient:
            self._prepared.executor.after_backward()

    # ------------------------------------------------------------------ what users see

    @property
    def live(self) -> list[Arm]:
        """The arms that take part in rounds."""
        return [arm for arm in self.arms if arm.live]

    @property
    def finished(self) -> bool:
        """Whether the search is over, before the Trainer's own limits."""
        return self.search is not None and self.search.done(self.arms)

    @property
    def best_arm(self) -> Arm:
        """The arm with the best last score that was not taken out; the earlier one of equals."""

        def rank(arm: Arm) -> float:
            last = arm.scores[-1] if arm.scores else math.nan
            return math.inf if math.isnan(last) else self._sign * last

        return min((arm for arm in self.arms if arm.eliminated_at is None), key=rank)

    @property
    def result(self) -> Result:
        """What has been found so far, and what it has cost."""
        if not self.arms:
            raise RuntimeError("there is no result yet: `trainer.fit(model, datamodule=...)` makes one.")
        best = self.best_arm
        score = best.scores[-1] if best.scores else math.nan
        arms = [
            {
                "index": arm.index,
                "client": self._chosen(arm),
                "server": dict(arm.server),
                "rounds": arm.rounds,
                "scores": list(arm.scores),
                "eliminated_at": arm.eliminated_at,
            }
            for arm in self.arms
        ]
        return Result(
            best={"client": self._deployed(best), "server": dict(best.server)},
            score=None if math.isnan(score) else score,
            best_arm=best.index,
            arms=arms,
            ledger=self.ledger.as_dict(),
            history=self._history,
            jobs=self._jobs_table,
            configs=curves.configurations(self.tuner, self.arms),
        )

    def evaluate(
        self,
        trainer: Trainer,
        model: LightningModule,
        data: FederatedData,
        split: Literal["train", "val", "test"] = "test",
        *,
        clients: int | Sequence[int] | None = None,
    ) -> Evaluation:
        """Test the best arm on the clients' own examples, before and after fine-tuning on them.

        Args:
            trainer: The Trainer of the run.
            model: The module of the run.
            data: The federation of the run.
            split: ``"test"`` runs the module's ``test_step``, or its ``validation_step`` where it has none;
                ``"val"`` and ``"train"`` run its ``validation_step``.
            clients: All of them, a number of them drawn at random, or their ids.

        Returns:
            ``{"global": {...}, "personalized": {...}}``: means over examples of everything the module logs. Its
            ``clients`` is a table of every client, its ``distribution`` the mean and percentiles over clients.
        """
        if self._prepared is None or not self.arms:
            raise RuntimeError(
                "`evaluate` needs a run: call `trainer.fit` first. To evaluate a finished one, `fit` with its "
                "checkpoint as `ckpt_path` loads it and trains nothing."
            )
        arm = self.best_arm
        result = evaluate_arm(
            self._prepared.executor,
            arm,
            lambda client: {**arm.client, **self.tuner.deployed(arm, client, self.seed)},
            trainer,
            model,
            data,
            split,
            clients,
            self.seed,
        )
        self._show_best()
        return result

    # ------------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return everything that affects the next round, and everything that was written down."""
        if self._prepared is None:
            return {}
        state = self._prepared.executor.state
        return {
            "identity": self._identity(),
            "torn": self._torn,
            "arms": [arm.state_dict() for arm in self.arms],
            "names": list(state.names[0]),
            "moving": [*state.names[1], *self._prepared.moving_personal],
            "initial_personal": list(state.initial_personal),
            "start": list(self._start) if self.search is not None and self.search.keeps_start else [],
            "rows": {index: dict(row) for index, row in self._rows.items()},
            "ledger": self.ledger.as_dict(),
            "history": self._history.state_dict(),
            "jobs": self._jobs_table.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a checkpoint's state until the arms are made."""
        self._saved = state_dict

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the best arm's weights also from inside a round, when the module holds a client's."""
        if self._in_round and self._prepared is not None:
            arm, state = self.best_arm, self._prepared.executor.state
            names = [*state.names[0], *state.names[1], *state.names[2]]
            tensors = [*arm.weights, *arm.buffers, *state.initial_personal]
            for name, tensor in zip(names, tensors, strict=True):
                if name in checkpoint["state_dict"]:
                    checkpoint["state_dict"][name] = tensor.detach().clone()

    def _identity(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm.identity(),
            "tuner": self.tuner.identity(),
            "search": None if self.search is None else self.search.identity(),
            "federation": self.data.fingerprint(),
            "cohort": self.cohort,
            "seed": self.seed,
            "monitor": self.monitor,
            "mode": self.mode,
            "target": self.target,
            "epochs": self.epochs,
        }

    def _restore(self, saved: dict[str, Any]) -> None:
        assert self._prepared is not None
        state = self._prepared.executor.state
        if list(state.names[0]) != saved["names"]:
            raise ValueError(
                f"the checkpoint's model trains {', '.join(saved['names'])}, this one {', '.join(state.names[0])}: "
                "resume with the module the run began with."
            )
        self._start = list(saved["start"]) or [tensor.detach().clone() for tensor in (*state.weights, *state.buffers)]
        self.arms = []
        for kept in saved["arms"]:
            arm = Arm(kept["index"], self.algorithm, kept["server"], state.weights, state.buffers)
            arm.load_state_dict(kept)
            self.arms.append(arm)
        self.ledger = Ledger.from_dict(saved["ledger"])
        self._history, self._jobs_table = Table(saved["history"]), Table(saved["jobs"])
        self._rows = {int(index): dict(row) for index, row in saved["rows"].items()}

    # ------------------------------------------------------------------ details

    @property
    def jobs_done(self) -> int:
        """How many jobs are done for good: those of arms that are aggregated."""
        return self.ledger.client_updates

    @property
    def local_steps(self) -> int:
        """How many steps the longest local training takes, for schedules that ask the Trainer."""
        largest = int(self.data.sizes("train").max())
        return max(1, math.ceil(largest / self.data.batch_size)) * self.epochs

    @property
    def _sign(self) -> float:
        return -1.0 if self.mode == "max" else 1.0

    def _start_arms(self, drafts: Sequence[Draft]) -> None:
        assert self._prepared is not None
        weights = len(self._prepared.executor.state.weights)
        for draft in drafts:
            index = len(self.arms)
            server = {**draft.server, **self.tuner.server(index, self.seed)}
            self.arms.append(
                Arm(index, self.algorithm, server, self._start[:weights], self._start[weights:], draft.client)
            )

    def _earlier(self) -> Iterator[tuple[dict[str, float], int]]:
        """Yield what the rounds so far have logged, with the jobs done by then."""
        for rows in by_round(self._history):
            figures = round_figures(rows, self.monitor)
            yield figures | curves.by_budget(figures, self.monitor), int(rows[-1]["ledger/client_updates"])

    def _online_figures(self) -> dict[str, float]:
        module = self._trainer.lightning_module
        result = self.evaluate(self._trainer, module, self.data, clients=self.evaluate_clients)
        return online_figures(result, self.best_arm.index)

    def _end_guard(self) -> None:
        if self._release is not None:
            self._release()
        self._release = None

    def _close(self, arm: Arm, results: Sequence[ClientResult]) -> None:
        """Aggregate an arm whose results are all in, let the tuner learn, and write down what it has cost."""
        self._torn = True
        size = arm.nbytes
        for result in results:
            self.ledger.add(result, bytes_up=0 if result.error else size, bytes_down=size)
            self._jobs_table.append(job_row(result))
        self.ledger.rounds += 1
        arm.scores.append(round_score(results, self.target))
        self.algorithm.aggregate(arm)
        self.tuner.observe(arm, [result for result in results if result.finite], self._context)
        self._rows[arm.index] = round_row(self._context.round, arm, results)
        self._dropped += [result for result in results if not result.finite]
        self._torn = False

    def _chosen(self, arm: Arm) -> dict[str, Any]:
        return {**arm.client, **self.tuner.best(arm)}

    def _deployed(self, arm: Arm) -> dict[str, Any]:
        if self._prepared is None:
            return self._chosen(arm)
        return dict(self._prepared.executor.binding.apply(self._chosen(arm)))

    @torch.no_grad()
    def _show_best(self) -> None:
        assert self._prepared is not None
        arm, executor = self.best_arm, self._prepared.executor
        self.tuner.leader = arm.index
        executor.state.load(arm.weights, arm.buffers, None)
        executor.binding.restore()
        for tensor in (*executor.state.weights, *executor.state.personal):
            tensor.grad = None

    def _warn_of_dropped(self) -> None:
        failed = [result for result in self._dropped if result.error]
        diverged = [result for result in self._dropped if not result.error]
        for result in failed:
            rank_zero_warn(f"{result.error} It is left out of the aggregate.")
        if diverged:
            clients = ", ".join(str(result.job.client) for result in diverged[:5])
            rank_zero_warn(
                f"{len(diverged)} of {len(self._jobs)} clients of round {self._context.round} came back with a loss "
                f"or weights that are not finite (clients {clients}{', ...' if len(diverged) > 5 else ''}): they are "
                "left out of the aggregate. A smaller learning rate helps."
            )
