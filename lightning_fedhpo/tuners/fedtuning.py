"""FedTuning: the cohort and the local epochs go up or down by one, by what an accuracy has cost.

Zhang, Zhang, Banerjee, Zhang: "FedTune: Automatic Tuning of Federated Learning Hyper-Parameters from System
Perspective" (arXiv 2110.03061). It has the name of its authors' program, since another method is called FedTune here.

Whenever the accuracy has gained ``gain``, the costs since the last time are divided by what was gained: computation
time t, transmission time q, computation load z, transmission load v. With x for the relative change of each to the time
before, ``|now - before| / now``, and ``preference`` (a, b, c, d), the cohort M and the epochs E change by the signs of

    change of M =  a eta_t x_t + b eta_q x_q - c eta_z x_z - d eta_v x_v
    change of E = -a zeta_t x_t + b zeta_q x_q - c zeta_z x_z + d zeta_v x_v

up where it is above zero, else down. Where M has just grown, ``eta_t`` and ``eta_q`` become the ratio of the last two
changes of t and q, else ``eta_z`` and ``eta_v`` those of z and v; with E likewise ``zeta_q`` and ``zeta_v``, or
``zeta_t`` and ``zeta_z``. The other two are multiplied by ``penalty`` where the weighted costs have risen. All begin at
1e9, so that what has not been measured decides first. The first time nothing changes.

The rule is the authors' program's. Deviations: the program compares the transmission load with the transmission time
where the change of the load is meant; it is the change here. A change that was zero before leaves its factor. The
score may be any that the run monitors: its negative is the accuracy where smaller is better, counted from the first
round's. Costs are of the clients that came through: seconds of simulated devices if there are, else examples of the
slowest client; examples of all; the bytes of one model and of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from numpy.typing import NDArray

from lightning_fedhpo.arguments import MOST_EPOCHS, check_kinds, number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.tuners.base import RunPlan, Tuner
from lightning_fedhpo.types import ClientResult, Config, RoundContext

Costs = NDArray[np.float64]
"""Computation time, transmission time, computation load, transmission load."""
UNMEASURED = 1e9
OF_COHORT, OF_EPOCHS = np.array([1.0, 1.0, -1.0, -1.0]), np.array([-1.0, 1.0, -1.0, 1.0])
"""Which costs fall where the cohort, or the number of epochs, grows."""


def renewed_factors(factors: Costs, ratios: Costs, measured: NDArray[np.bool_], worse: bool, penalty: float) -> Costs:
    """Return the factors: ratios for what was measured, and a penalty on the rest where costs have risen.

    >>> first = np.array([True, True, False, False])
    >>> renewed_factors(np.ones(4), np.array([2.0, 3.0, 4.0, math.nan]), first, worse=True, penalty=10.0).tolist()
    [2.0, 3.0, 10.0, 10.0]
    """
    rest = factors * (penalty if worse else 1.0)
    return np.where(measured, np.where(np.isfinite(ratios), ratios, factors), rest)


@dataclass
class _Course:
    """An arm's course: what it trains with, and its costs since the accuracy last gained enough."""

    cohort: int
    epochs: int
    accuracy: float | None
    spent: list[float] = field(default_factory=lambda: [0.0] * 4)
    costs: list[float] = field(default_factory=list)
    costs_before: list[float] = field(default_factory=lambda: [0.0] * 4)
    sizes_before: list[int] = field(default_factory=lambda: [0, 0])
    factors: list[list[float]] = field(default_factory=lambda: [[UNMEASURED] * 4, [UNMEASURED] * 4])


def round_costs(arm: Arm, results: Sequence[ClientResult]) -> Costs:
    """Return what a round has cost."""
    one_model = 2 * arm.nbytes + arm.nbytes_broadcast
    times = [one.examples if one.job.seconds is None else one.job.seconds for one in results]
    loads = sum(one.examples for one in results), one_model * len(results)
    return np.array([max(times, default=0), one_model, *loads], dtype=np.float64)


class FedTuning(Tuner):
    """Change cohort and epochs during training, by which costs count.

    Args:
        preference: How much computation time, transmission time, computation load and transmission load count.
        epochs: Local epochs at first. The first cohort is the loop's.
        gain: How much the accuracy has to gain between two changes.
        penalty: How much a side counts more where costs have risen.
        most_epochs: The most epochs.
        most_clients: The most clients of a round; None for all.

    Example:
        >>> FedTuning(preference=(0.5, 0.5, 0, 0), epochs=2).client_names
        ('epochs',)
    """

    client_names = ("epochs",)
    settings = ("preference", "epochs", "gain", "penalty", "most_epochs", "most_clients")

    def __init__(
        self,
        preference: Sequence[float] = (0.25, 0.25, 0.25, 0.25),
        epochs: int = 1,
        gain: float = 0.01,
        penalty: float = 10.0,
        most_epochs: int = 50,
        most_clients: int | None = None,
    ) -> None:
        check_kinds(FedTuning, locals())
        self.preference = [float(number("each part of `preference`", part, low=0)) for part in preference]
        if len(self.preference) != 4 or not sum(self.preference):
            raise ValueError(
                "`preference` must be four numbers that are not all 0, of computation time, transmission time, "
                f"computation load and transmission load; got {self.preference}."
            )
        self.most_epochs = whole("most_epochs", most_epochs, 1, MOST_EPOCHS)
        self.epochs = whole("epochs", epochs, 1, self.most_epochs)
        self.gain = float(number("gain", gain, above=0))
        self.penalty = float(number("penalty", penalty, low=1))
        self.most_clients = None if most_clients is None else whole("most_clients", most_clients)
        self._start = self._all = 1
        self.reset()

    def reset(self) -> None:
        """Forget earlier runs."""
        self._courses: dict[int, _Course] = {}

    def plan(self, plan: RunPlan) -> None:
        """Take the first cohort and the number of clients."""
        if plan.monitor is None:
            raise MisconfigurationException("FedTuning waits for a score to rise: name a `monitor`.")
        self._start, self._all = plan.cohort, min(plan.clients, self.most_clients or plan.clients)

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Add up the round's costs, and change cohort and epochs where the accuracy has gained enough."""
        accuracy = -context.sign * arm.scores[-1]
        begins_at = 0.0 if context.sign < 0 else None  # an accuracy begins at 0, a loss where it is
        course = self._courses.setdefault(arm.index, _Course(self._start, self.epochs, begins_at))
        course.spent = (np.array(course.spent) + round_costs(arm, results)).tolist()
        if course.accuracy is None:
            course.accuracy = accuracy if math.isfinite(accuracy) else None
        elif accuracy - course.accuracy > self.gain:
            self._decide(course, accuracy)
            arm.cohort = course.cohort

    def _decide(self, course: _Course, accuracy: float) -> None:
        now, sizes = np.array(course.spent) / (accuracy - (course.accuracy or 0.0)), [course.cohort, course.epochs]
        if course.costs:
            before, earlier, new = np.array(course.costs), np.array(course.costs_before), []
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.abs(now - before) / np.abs(before - earlier)
                changes = np.nan_to_num((now - before) / now)
            weights = np.array(self.preference)
            worse = bool(weights @ changes > 0)
            for place, (signs, most) in enumerate(((OF_COHORT, self._all), (OF_EPOCHS, self.most_epochs))):
                measured = (signs > 0) == (sizes[place] > course.sizes_before[place])
                factors = renewed_factors(np.array(course.factors[place]), ratios, measured, worse, self.penalty)
                course.factors[place] = factors.tolist()
                up = weights @ (signs * factors * np.abs(changes)) > 0
                new.append(min(max(sizes[place] + (1 if up else -1), 1), most))
            course.cohort, course.epochs = new
            course.costs_before = before.tolist()
        course.costs, course.sizes_before = now.tolist(), sizes
        course.spent, course.accuracy = [0.0] * 4, accuracy

    def best(self, arm: Arm) -> Config:
        """Return the present epochs."""
        course = self._courses.get(arm.index)
        return {"epochs": self.epochs if course is None else course.epochs}

    def trial(self, seed: int) -> Config:
        """Return the first epochs."""
        return {"epochs": self.epochs}

    def contrast(self, name: str) -> tuple[Any, Any] | None:
        """Return two numbers of epochs, if there are two."""
        return (1, 2) if self.most_epochs > 1 else None

    def edges(self, name: str, part: Literal["client", "server"] = "client") -> Sequence[Any]:
        """Return the least and the most epochs."""
        return [1, self.most_epochs]

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return cohort and epochs of the arm's next round."""
        course = self._courses.get(arm.index)
        return {} if course is None else {"fedtuning/cohort": course.cohort, "fedtuning/epochs": course.epochs}

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's course."""
        return {"courses": {index: asdict(course) for index, course in self._courses.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them over."""
        self._courses = {index: _Course(**course) for index, course in state_dict["courses"].items()}
