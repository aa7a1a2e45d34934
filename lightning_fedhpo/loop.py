"""The round of a federated run, as a callback: drop it into a Trainer and the module is trained on many clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import machine, processes, seeding
from lightning_fedhpo.algorithms import Algorithm, FedAvg
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.executors.settings import Setting
from lightning_fedhpo.participation import Devices, NoisyScores, Participation, UniformClients
from lightning_fedhpo.run import divergence, identity, result_text, unscored
from lightning_fedhpo.run.evaluation import Evaluation, evaluate, online_test
from lightning_fedhpo.run.result import Result, clients_of, result_of
from lightning_fedhpo.setup import checks
from lightning_fedhpo.setup.options import LoopOptions
from lightning_fedhpo.setup.run_hooks import RunHooks
from lightning_fedhpo.setup.session import Session
from lightning_fedhpo.tracking.round_figures import round_figures
from lightning_fedhpo.tracking.run_log import RunLog, log_settings
from lightning_fedhpo.types import ClientResult, Job, RoundContext, plain


class FederatedLoop(RunHooks):
    """Turn ``Trainer.fit`` into a simulated federated run.

    An epoch is a round, a batch is one client's job: the progress bar shows the jobs of a round, ``max_epochs`` bounds
    the rounds, and checkpoints, early stopping, timers and loggers work as they always do. The module stays as it is;
    after ``fit`` it holds the best arm's global model.

    Args:
        algorithm: The federated method; :class:`~lightning_fedhpo.FedAvg` by default.
        cohort: How many clients take part in a round, drawn anew for each.
        monitor: The score, among what the module's ``validation_step`` logs or returns; None trains without scores.
        mode: Which scores are better.
        target: ``"personalized"`` scores a client's model after its local training, ``"global"`` before it;
            ``"server"`` scores the arm's new global model on the server's own examples.
        executor: ``"sequential"`` runs jobs one after another, ``"vectorized"`` side by side in one computation,
            ``"auto"`` in the way that is likely to be faster; or :class:`~lightning_fedhpo.executors.Vectorized`.
        epochs: Local epochs of a job, if no tuner sets them.
        seed: Every random draw of the run is a function of it.
        score_before: Score clients also before they train, for each round's global figures; by default where needed.
        evaluate_at: Test the best arm so far, global and personalized, each time all arms together have spent so many
            rounds more, or at these numbers of rounds: ``test/`` in ``history``. The ledger does not count it.
        evaluate_clients: How many clients such a test takes, drawn once; all by default.
        on_error: What follows when a client's training raises; ``"drop"`` goes on without the client.
        retrain: After the search, train the best configuration from the run's initial weights for so many rounds, in
            the same ``fit``. Ledger, history and logs keep them apart, and a search's budget does not count them;
            ``max_epochs`` covers both. Without a search, the rounds before them tune.
        on_difference: What follows when a checkpoint belongs to a run with other settings.
        log_arms: How many arms' figures are logged as ``arm/<i>/<name>``: those that were best when they were chosen,
            as long as they live; ``"all"`` logs every arm's. The history has all of them.
        schedules: ``"job"`` begins learning-rate schedules anew in every job, ``"rounds"`` steps each once a round.
        server_data: The server's own validation examples, a data set or a ``DataLoader``; by default those that
            ``FederatedData(server_fraction=...)`` holds out. Every arm is scored on them after aggregation.
        clients: Who takes part in a round, uniformly drawn by default.
        devices: Simulated :class:`~lightning_fedhpo.Devices`: speed, drop-outs, a deadline.
        client_memory: MiB that an arm's clients keep in memory; more lies in files below ``default_root_dir``.
        noise: :class:`~lightning_fedhpo.NoisyScores` in place of exact ones, for search and tuner.
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

    def __init__(
        self,
        algorithm: Algorithm | None = None,
        cohort: int = 10,
        monitor: str | None = "val_loss",
        mode: Literal["min", "max"] = "min",
        target: Literal["personalized", "global", "server"] = "personalized",
        executor: Literal["auto", "sequential", "vectorized"] | Setting = "auto",
        *,
        epochs: int = 1,
        seed: int = 0,
        score_before: bool | None = None,
        evaluate_at: int | Sequence[int] | None = None,
        evaluate_clients: int | None = None,
        on_error: Literal["raise", "drop"] = "raise",
        on_difference: identity.OnDifference = "raise",
        log_arms: int | Literal["all"] = 3,
        server_data: Any = None,
        retrain: int | None = None,
        verify: bool = True,
        clients: Participation | None = None,
        devices: Devices | None = None,
        client_memory: float = 256.0,
        noise: NoisyScores | None = None,
        schedules: Literal["job", "rounds"] = "job",
    ) -> None:
        super().__init__()
        self._log, self.algorithm = RunLog(), FedAvg() if algorithm is None else algorithm
        self.options = options = LoopOptions(
            self.algorithm, cohort, monitor, mode, target, executor, epochs, seed, score_before, evaluate_at,
            evaluate_clients, on_error, on_difference, log_arms, server_data, retrain, verify,
            UniformClients() if clients is None else clients, devices, client_memory, noise, schedules,
        )  # fmt: skip
        self.cohort, self.epochs, self.seed = options.cohort, options.epochs, options.seed
        self.retrain = options.retrain
        self.monitor, self.mode, self.target, self.executor = monitor, mode, target, executor

    # ------------------------------------------------------------------ the round

    def begin_round(self, number: int) -> Sequence[Job]:
        """Draw every live arm's cohort and let the tuner choose each client's configuration."""
        session, arms = self.session, self.session.arms
        self._context = RoundContext(number, self.seed, session.needs_before, self.options.sign)
        self._jobs: list[Job] = []
        session.in_round = True
        if self.retrain and arms.retrained is None and session.search.done(arms):
            arms.retrain_best(session.chosen(arms.best), clients_of(arms.best, session.tuner))
        elif arms.retrained is None:
            session.start_arms(session.search.begin(arms, self._context))
        for arm in arms.live:
            if arm.index not in session.records.rows:  # else a checkpoint from inside the round had it done already
                arm.discard()
                self._jobs += self._jobs_of(arm)
        return self._jobs

    def _jobs_of(self, arm: Arm) -> list[Job]:
        session, tuner, number = self.session, self.session.tuner_of(arm), self._context.round
        cohort = [client for client in session.cohort_of(arm, number) for _ in range(tuner.repeats)]
        suggestions = tuner.suggest(arm, cohort, self._context)
        checks.check_suggestions(tuner, suggestions, len(cohort))
        jobs = [
            Job(number, arm.index, client, arm.config_of(client) | plain(one.config), one.index, one.weight)
            for client, one in zip(cohort, suggestions, strict=True)
        ]
        return session.with_fates(jobs)

    def results(self) -> Generator[ClientResult]:
        """Run the jobs, arm by arm.

        A result goes into its arm's sums as it comes, and an arm is aggregated when its last result is in: memory
        grows neither with the cohort nor, but for their weights, with the arms. If jobs of several arms are
        computed together, or several processes share the round, no arm is aggregated before all jobs are done.
        """
        session, executor = self.session, self.session.executor
        arms = {arm.index: arm for arm in session.arms.live}
        whole = processes.world() > 1 or executor.aggregates_whole_rounds
        left = Counter(job.arm for job in self._jobs)
        waiting: dict[int, list[ClientResult]] = {i: [] for i in arms if i not in session.records.rows}
        with seeding.preserved(), machine.threads(executor.threads):
            heed = partial(private.heed_sigterm, session.trainer)
            for result in processes.shared_round(self._jobs, arms, self._run_jobs, session.cost, heed):
                index = result.job.arm
                waiting[index].append(result)
                left[index] -= 1
                yield result
                if not (whole or left[index]):
                    self._aggregate(arms[index], waiting.pop(index))
            for index, results in waiting.items():
                self._aggregate(arms[index], results)

    def _run_jobs(self, jobs: Sequence[Job], arms: Mapping[int, Arm]) -> Iterator[ClientResult]:
        """Run jobs, and let algorithm and tuner take each result while its tensors live."""
        for result in self.session.executor.run(jobs, arms, self._context):
            arm = arms[result.job.arm]
            result = result if result.job.lost is None else replace(result, finite=False)
            if result.finite:
                self.algorithm.receive(arm, result)
                received = self.session.tuner_of(arm).receive(arm, result)
                result = result if received is None else replace(result, received=received)
            yield result

    def _aggregate(self, arm: Arm, results: Sequence[ClientResult]) -> None:
        """Aggregate an arm whose results are all in, and let the tuner learn."""
        session, tuner, number = self.session, self.session.tuner_of(arm), self._context.round
        session.aggregating, in_force = True, session.in_force(arm)  # before the arm goes on to its next round
        self.algorithm.aggregate(arm)
        in_force |= self.algorithm.figures(arm)
        on_server = {} if session.server is None else session.server.score(arm, session.chosen(arm))
        score, seen, exact = session.scored(arm, results, on_server, number)
        session.records.take_score(arm, score, results)
        session.records.record_round(number, arm, results, on_server, exact | in_force, tuner.models_received)
        tuner.observe(arm, seen, self._context)
        session.aggregating = False

    def end_round(self) -> None:
        """Let search and tuner act between arms, write the round down, and show the best arm in the module."""
        session, arms, records = self.session, self.session.arms, self.session.records
        session.aggregating = True
        records.warn_of_dropped(self._context.round, len(self._jobs))
        took_part = arms.live
        if arms.retrained is None:
            for arm in (eliminated := session.search.end(arms, self._context)):
                arm.eliminate(arm.rounds)
            result_text.tell_eliminated(session, eliminated)
            session.tuner.evolve(arms.live, self._context)
        for arm in took_part:
            records.figures_of(arm, session.tuner_of(arm).figures(arm))
        tested = online_test(session, records.spent - len(took_part))
        self._rows = records.close(arms.best.index, len(arms.live), tested)
        session.in_round = session.aggregating = False
        session.show_best()

    def publish(self) -> None:
        """Log the round's figures, where callbacks and loggers look for them."""
        session = self.session
        private.publish(session.trainer, round_figures(self._rows, self.options), self.monitor)
        self._log.log_round(self._rows)
        if self._context.round == 0:
            machine.give_back()  # the arms' memory is interleaved with blocks that the first round has freed
        divergence.check(session, self._jobs)
        unscored.check(session, self._rows)

    @property
    def finished(self) -> bool:
        """Whether the search and what comes after it are over, before the Trainer's own limits."""
        arms = self.session.arms
        if self.retrain:
            return arms.retrained is not None and arms.retrained.rounds >= self.retrain
        return self.session.search.done(arms)

    # ------------------------------------------------------------------ Lightning's hooks

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check everything that can be checked, and put the federated loop in the Trainer's place."""
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        with processes.fail_together("the set-up") as answers:
            self._set_up(trainer, pl_module)
            answers.own = identity.of_run(self.session) if processes.world() > 1 else {}
        checks.check_alike(answers.all)

    def _set_up(self, trainer: Trainer, module: LightningModule) -> None:
        session = Session(trainer, module, self.options)
        session.continue_from(self._session if isinstance(trainer.fit_loop, private.RoundsLoop) else None)
        self._session = session
        log_settings(session)
        private.install(trainer, self)
        self._release = session.install(self.state_key)

    def start(self, trainer: Trainer, module: LightningModule) -> None:
        """Try the module, and make the arms or take up those of a checkpoint."""
        self.session.start()
        self._log.begin(self.session)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the best arm's model and hyperparameters in the module."""
        if self.session.has_arms:
            self._log.end()
            result_text.tell_found(self.result)
            self.session.deploy()

    @property
    def result(self) -> Result:
        """What has been found so far, and what it has cost."""
        if self._session is None or not self._session.has_arms:
            raise RuntimeError("there is no result yet: `trainer.fit(model, datamodule=...)` makes one.")
        return result_of(self._session)

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
            data: The federation of the run, or another one whose clients nobody has trained on.
            split: ``"test"`` runs the module's ``test_step``, if it has one, else as ``"val"`` and ``"train"`` its
                ``validation_step``.
            clients: All of them, a number of them drawn at random, or their ids.

        Returns:
            ``{"global": {...}, "personalized": {...}}``: means over examples of everything the module logs.
        """
        if self._session is None or not self._session.has_arms:
            raise RuntimeError(
                "`evaluate` needs a run: call `trainer.fit` first. To evaluate a finished one, `fit` with its "
                "checkpoint as `ckpt_path` loads it and trains nothing."
            )
        result = evaluate(self._session, self._session.arms.best, trainer, model, data, split, clients)
        self._session.show_best()
        return result
