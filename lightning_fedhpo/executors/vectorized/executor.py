"""The executor that runs jobs side by side, as long as its results are those of the sequential executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.executors.base import Executor
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.executors.vectorized.batched_jobs import BatchedJobs
from lightning_fedhpo.executors.vectorized.eligibility import conditions, original_values
from lightning_fedhpo.executors.vectorized.equivalence import LATER, compare, is_compared
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.executors.vectorized.programs import first_line
from lightning_fedhpo.types import ClientResult, Job, RoundContext

_OF_LIGHTNING = frozenset(vars(LightningModule())) - {"training"}
_PLAIN = (int, float, str, type(None))


class VectorizedExecutor(Executor):
    """Runs jobs side by side."""

    aggregates_whole_rounds = True

    def __init__(self, batched: BatchedJobs, sequential: SequentialExecutor) -> None:
        self.batched, self.sequential, self.bench = batched, sequential, batched.bench
        self.vectorized_matches = True
        self._stale = False
        self._fingerprint = fingerprint_of(self.bench)

    def retrace(self) -> None:
        """Trace the module's steps anew before the next round."""
        self._stale = True

    def run(self, jobs: Sequence[Job], arms: Mapping[int, Arm], context: RoundContext) -> Iterator[ClientResult]:
        """Yield the result of every job in turn; its tensors hold until the next is asked for."""
        if not jobs:
            return
        self.bench.clean(context.round)
        seeding.seed_user_code(seeding.key(context.seed, seeding.USER, context.round))  # what callbacks draw from
        fingerprint = fingerprint_of(self.bench)
        self._stale, self._fingerprint = self._stale or fingerprint != self._fingerprint, fingerprint
        together = bool(self.vectorized_matches) and not self._trainable_set_changed()
        for number, wave in enumerate(self.batched.waves(jobs)):
            results: dict[int, ClientResult] = {}
            if together:
                try:
                    places = self.batched.in_lanes(wave, arms)
                    several = [wave[place] for place in places]
                    done = self._run_wave(several, arms, context, first=number == 0) if several else []
                    results = dict(zip(places, done, strict=True))
                except Exception as error:
                    # A step that cannot be batched any more; or one client's examples, and the next round may do.
                    together, self.vectorized_matches = False, not isinstance(error, CannotBatchError)
                    what = "this round" if self.vectorized_matches else "the run"
                    rank_zero_warn(f"executor: {what} goes on one job after another: {first_line(error)}.")
                    if not self.vectorized_matches:
                        self.threads = self.sequential.threads  # as in a run that is resumed from here
                        self.choice = f"jobs run one after another since round {context.round}: {first_line(error)}"
            for place, job in enumerate(wave):
                result = results.get(place) or self.bench.run_job(job, arms[job.arm], context)
                try:
                    yield result
                finally:  # a round ends without asking for more than its last result
                    result.release()
            for arm in arms.values():
                arm.add_stacked()  # the next wave is not to be in memory beside this one

    def _trainable_set_changed(self) -> bool:
        """Whether ``requires_grad`` has changed since the run began: the sequential executor raises an error then."""
        state = self.bench.state
        return not all(weight.requires_grad for weight in state.weights) or any(
            parameter.requires_grad for parameter in state.frozen.values()
        )

    def _run_wave(
        self, wave: Sequence[Job], arms: Mapping[int, Arm], context: RoundContext, first: bool
    ) -> list[ClientResult]:
        """Trace anew if the module has changed, and compare a job if this round is one of the compared."""
        if self._stale:
            _, reasons = conditions(self.bench)
            if reasons:
                raise CannotBatchError("; ".join(reasons))
            scout(self.batched, wave[0].client)
            self._stale = False
        if not (first and is_compared(context.round)):
            return self.batched.run(wave, arms, context)
        chosen = seeding.key(context.seed, seeding.EVALUATION, context.round) % len(wave)
        early: dict[int, ClientResult] = {}
        results = self.batched.run(wave, arms, context, [chosen], early)
        compare(self.batched, early, results, arms, context, LATER)
        return results


def scout(batched: BatchedJobs, client: int) -> None:
    """Find out anew what the module's steps log, drop out and train."""
    bench, programs = batched.bench, batched.programs
    batched.forget()
    values = original_values(bench.binding, bench.state.weights[0].device)
    for stage in ("training", "validation") if bench.monitor is not None else ("training",):
        bench.clean()
        programs.scout(stage, values)
    with bench.rewound():
        bench.step_once(client)
        # torch's optimizers leave weights without a gradient alone
        programs.freeze([number for number, weight in enumerate(bench.state.weights) if weight.grad is None])
    bench.clean()


def fingerprint_of(bench: Workbench) -> list[Any]:
    """Return layers, buffers, `requires_grad`, and the plain numbers, flags and strings among attributes."""
    found: list[Any] = []
    module = bench.local.module
    for layer in module.modules():
        found += [id(layer), *((id(weight), weight.requires_grad) for weight in layer.parameters(recurse=False))]
        found += [id(buffer) for buffer in layer.buffers(recurse=False)]
    for owner in (*module.modules(), bench.algorithm):
        own = [item for item in vars(owner).items() if item[0] not in _OF_LIGHTNING]
        found.append([item for item in own if isinstance(item[1], _PLAIN)])
    return found
