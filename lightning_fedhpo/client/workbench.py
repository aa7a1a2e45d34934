"""The bench on which the user's module lies: its tensors, binding and data, one client's job at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import LOCAL, Arm
from lightning_fedhpo.binding.binding import Binding
from lightning_fedhpo.client.cosine import LeastCosine
from lightning_fedhpo.client.local_run import LOCAL_EPOCHS, AddedGradient, Limits, LocalRun, Method
from lightning_fedhpo.client.module_state import ModuleState, all_finite
from lightning_fedhpo.client.training import Around, Done, LocalTraining
from lightning_fedhpo.data.examples import Examples
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.files.folders import UnreadableError
from lightning_fedhpo.types import ClientResult, Config, Job, RoundContext

STEPS_COMPARED = 3
"""First steps of a job that are compared: in longer trainings rounding errors grow to where they prove nothing."""


class Workbench:
    """Trains and validates the user's module for one client after another.

    Executors, the dry run, the server's validation and evaluation work on it.
    """

    def __init__(
        self,
        local: LocalTraining,
        state: ModuleState,
        binding: Binding,
        data: FederatedData,
        algorithm: Method,
        limits: Limits,
        monitor: str | None,
        on_error: Literal["raise", "drop"],
    ) -> None:
        self.local, self.state, self.binding, self.data, self.algorithm = local, state, binding, data, algorithm
        self.limits, self.monitor, self.on_error = limits, monitor, on_error
        self._generator = torch.Generator()
        self._start: Sequence[Tensor] = ()
        self._carried: Sequence[Tensor] = ()
        self.cosines = LeastCosine()
        self._added: AddedGradient | None = None
        self._still: Sequence[Tensor] = ()
        layers = [layer for layer in local.module.modules() if getattr(layer, "sparse", False)]
        self._sparse = [parameter for layer in layers for parameter in layer.parameters()]
        self._share = 1.0 / local.trainer.accumulate_grad_batches

    def run_job(self, job: Job, arm: Arm, context: RoundContext) -> ClientResult:
        """Run one job; its tensors hold until the next. With ``on_error="drop"`` a client may fail."""
        try:
            return self._run(job, arm, context)
        except UnreadableError:  # the fault of no client
            raise
        except Exception as error:
            message = (
                f"client {job.client} failed in round {job.round} of arm {job.arm} with {dict(job.config)}: "
                f"{type(error).__name__}: {error}"
            )
            if self.on_error == "raise":
                raise RuntimeError(f'{message}. With `on_error="drop"` the run goes on without it.') from error
            return ClientResult(job, (), (), (), {}, 0, 0, 0, 0, 0, None, None, finite=False, error=message)
        finally:
            self.state.end()

    @contextmanager
    def briefly(self) -> Iterator[None]:
        """Limit single jobs to the steps that are compared, and the vectorized executor to epochs that have them."""
        whole, limit = self.limits, self.limits.train
        train = min(limit, STEPS_COMPARED) if isinstance(limit, int) or limit == 1.0 else limit
        self.limits = replace(whole, train=train, steps=STEPS_COMPARED)
        try:
            yield
        finally:
            self.limits = whole

    def clean(self, *place: int) -> None:
        """Make the module what a client of this round finds."""
        self.state.begin(*place)
        self.state.end()

    def step_once(self, client: int, epochs: int = 1) -> None:
        """Take the first step of each of a client's epochs; :meth:`rewound` rolls it back."""
        self.state.begin()
        with seeding.preserved():
            self.begin_client(self.untrained_arm(), client, {})
            self.train(self.data, client, 0, epochs=epochs, limits=replace(self.limits, train=1, val=1.0, steps=epochs))

    @contextmanager
    def rewound(self) -> Iterator[None]:
        """Roll the module's tensors back afterwards."""
        state = self.state
        weights, buffers = ([tensor.detach().clone() for tensor in kind] for kind in (state.weights, state.buffers))
        try:
            yield
        finally:
            state.end()
            state.load(weights, buffers, None)

    def _run(self, job: Job, arm: Arm, context: RoundContext) -> ClientResult:
        local, state, val = self.local, self.state, self.data.examples(job.client, "val")
        seed, place = context.seed, (job.round, job.arm, job.client)
        used = self.prepare(job, arm)
        scored = self.monitor is not None and len(val) > 0
        before: dict[str, float] = {}
        if scored and context.needs_before:
            seeding.seed_user_code(seeding.key(seed, seeding.EVALUATION, *place))
            before = local.evaluate(val, limit=self.limits.val)
        seeding.seed_user_code(seeding.key(seed, seeding.USER, *place))
        run = self.train(self.data, job.client, seeding.key(seed, seeding.BATCHES, *place))
        after = local.evaluate(val, limit=self.limits.val) if scored else {}
        state.adopt_replaced_buffers()
        weights, buffers, personal = run.sent or (list(state.weights), list(state.buffers), list(state.personal))
        result = self.result(job, used, run.done, weights, run.logged or {}, before, after)
        others = (*buffers, *personal, *(tensor for tensors in run.handed.values() for tensor in tensors))
        finite = result.finite and all_finite(weights) and all(bool(tensor.isfinite().all()) for tensor in others)
        result = replace(result, handed=run.handed, least_cosine=self.cosines.least)
        return replace(result, buffers=buffers, personal=personal, finite=finite)

    def result(
        self,
        job: Job,
        used: Config,
        done: Done,
        weights: Sequence[Tensor],
        train: Mapping[str, float],
        before: Mapping[str, float],
        after: Mapping[str, float],
    ) -> ClientResult:
        """Return the result of a job whose validation has logged something ``before`` and ``after`` training."""
        val_examples = self.local.scored(self.data.rows(job.client, "val"), self.limits.val)
        score = self.score(after) if self.monitor is not None and val_examples else None
        return ClientResult(
            job=job,
            weights=weights,
            buffers=(),
            personal=(),
            used=used,
            train_examples=int(self.data.sizes("train")[job.client]),
            val_examples=val_examples,
            local_steps=done.steps,
            examples=done.examples,
            evaluations=done.evaluations + (bool(before) + bool(after)) * val_examples,
            score_before=self.score(before) if before else None,
            score_after=score,
            before=before,
            after=after,
            train=train,
            finite=score is None or math.isfinite(score),
            lr_sums=[0.0 if g is None else done.lr_sums[g] for g in self._groups] if done.lr_sums else (),
        )

    @cached_property
    def _groups(self) -> list[int | None]:
        """The parameter group of each weight, counted over all optimizers; None if it is in none."""
        groups = (group for one in self.local.trainer.optimizers for group in one.param_groups)
        places = {id(weight): place for place, group in enumerate(groups) for weight in group["params"]}
        return [places.get(id(weight)) for weight in self.state.weights]

    def prepare(self, job: Job, arm: Arm, known: bool = True) -> dict[str, object]:
        """Load the arm's weights and the job's hyperparameters into the module.

        A client that is not ``known`` is of another federation: it keeps nothing from earlier rounds.
        """
        self.state.begin(job.round, job.arm, job.client)
        self.state.load(arm.weights, arm.buffers, arm.kept(job.client, LOCAL) if known else None)
        return self.begin_client(arm, job.client if known else None, job.config)

    def untrained_arm(self) -> Arm:
        """Return an arm that begins with the module as it is."""
        return Arm(0, self.algorithm, {}, self.state.weights, self.state.buffers)

    def show(self, arm: Arm) -> None:
        """Leave an arm's model in the module, with the author's values on everything that is tuned."""
        self.state.end()
        self.state.load(arm.weights, arm.buffers, None)
        self.binding.restore()
        for tensor in (*self.state.weights, *self.state.personal):
            tensor.grad = None

    def begin_client(self, arm: Arm, client: int | None, config: Config) -> dict[str, object]:
        """Prepare a client's training: clear gradients and set its hyperparameters; return the values in force."""
        self._start, self._arm, self._client = arm.weights, arm, client
        if self.algorithm.adds_gradient:
            self._carried = self.algorithm.carried(arm, client)
        for tensor in (*self.state.weights, *self.state.personal):
            tensor.grad = None
        self._config = self.binding.in_round(config, arm)
        return self.binding.apply(self._config)

    def evaluate(self, examples: Examples, batch_size: int | None = None) -> dict[str, float]:
        """Return what the module logs when it validates on examples, as it is now."""
        return self.local.evaluate(examples, limit=self.limits.val, batch_size=batch_size)

    def train(
        self,
        data: FederatedData,
        client: int,
        draw: int,
        *,
        sends: bool = True,
        epochs: int | None = None,
        limits: Limits | None = None,
    ) -> LocalRun:
        """Train the client that :meth:`begin_client` has begun, on examples whose order ``draw`` seeds.

        Training starts from what the server sends, in a round as in a test. ``sends`` says whether anything of the
        model is sent back. Epochs and limits are those in force by default.
        """
        settings, limits = self.binding.settings, limits or self.limits
        received = self.algorithm.sent(self._arm)
        if received is not self._arm.weights:
            torch._foreach_copy_([weight.detach() for weight in self.state.weights], list(received))
            self._start = received
        first = int(settings.algorithm.get(LOCAL_EPOCHS, 0))
        self.cosines.begin()

        def once(around: Around | None, after_epoch: Callable[[int], None] | None, added: AddedGradient | None) -> Done:
            self._added = added or self._adds
            self._still = self.state.weights if first else ()
            self.state.snapshot.reseed(draw)

            def epoch_ended(epoch: int) -> None:
                if epoch + 1 == first:
                    self._still = self.state.personal
                if after_epoch is not None:
                    after_epoch(epoch)

            examples = data.examples(client, "train")
            done = self.local.train(
                examples,
                first + (epochs or settings.epochs),
                settings.batch_size,
                limits.batches(len(examples), settings.batch_size),
                self._generator.manual_seed(draw),
                limits.steps,
                first,
                val=data.examples(client, "val") if self.local.watches_validation else None,
                val_limit=limits.val,
                around=around,
                after_epoch=epoch_ended,
            )
            self.cosines.active = False  # a second training does not start from what was received
            return done

        run = LocalRun(
            self._arm, self._client, settings.algorithm, self._start, sends, self.state, self.local,
            partial(data.examples, client), once, lambda: self.binding.apply(self._config),
        )  # fmt: skip
        self.algorithm.train_locally(run)
        return run

    @property
    def _adds(self) -> AddedGradient | None:
        """What the algorithm adds to gradients by :meth:`Algorithm.added_gradient`."""
        if not self.algorithm.adds_gradient:
            return None
        weights, values = self.state.weights, self.binding.settings.algorithm
        return lambda: self.algorithm.added_gradient(weights, self._start, values, self._carried)

    @torch.no_grad()
    def after_backward(self) -> None:
        """Add what the algorithm adds to the gradients, drop those of what is not to move, and look at cosines."""
        for tensor in self._still:
            tensor.grad = None
        for tensor in self._sparse:
            if tensor.grad is not None and tensor.grad.is_sparse:
                tensor.grad = tensor.grad.to_dense()  # what is added is not sparse
        weights, added = self.state.weights, [] if self._added is None else self._added()
        pairs = [(w.grad, one) for w, one in zip(weights, added, strict=False) if w.grad is not None]
        if pairs:
            grads, more = zip(*pairs, strict=True)
            torch._foreach_add_(list(grads), list(more), alpha=self._share)
        self.cosines.look(weights, self._start)

    def score(self, metrics: Mapping[str, float]) -> float:
        """Return the monitored one of what the module logged."""
        monitor = str(self.monitor)
        if monitor not in metrics:
            logged = ", ".join(metrics) or "nothing"
            raise KeyError(f"the module did not log {monitor!r} in `validation_step`; it logged {logged}")
        return metrics[monitor]
