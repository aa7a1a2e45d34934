"""Theorem 4.1 of the FedEx paper, run: task-averaged regret over the number of tasks, beside its bound.

    python recipes/theorem/regret.py [--seeds 3]

Tasks are m losses ``G |<x_i, w - w*_t>|`` with random unit vectors x_i: convex, G-Lipschitz, between 0 and b = G D. The
optima w*_t lie at distance V around a centre, so that V is what equation 9 says. With V = 0 every task but the first
starts at its optimum, where the loss has a kink and every number from -1 to 1 times G x is a subgradient: these runs
are done with G x, which leaves the optimum, and with 0, which stays. The distribution over step sizes moves by the
functions that FedEx runs with. Each number of tasks is a run of its own: k and eta depend on it. The numbers of tasks
are those at which the theorem's k is a whole number.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo.plots.chart import COLOURS, Chart, Line, Points
from lightning_fedhpo.plots.matplotlib_axes import draw
from lightning_fedhpo.tuners.exponentiated_gradient import gradient, normalised, sampled

Numbers = NDArray[np.float64]
D, G, M, DIMENSIONS = 1.0, 1.0, 10, 2
SIMILARITIES = (0.0, 0.05, 0.1, 0.3)
"""The values of V: the distance of tasks' optima from their mean, in diameters of the space."""
CASES = ((0.0, 0.0), *((similarity, 1.0) for similarity in SIMILARITIES))
"""Similarities, with the subgradient that is taken at a kink, in units of G x; with V above 0 nobody meets one."""
ARMS = (2, 3, 4, 6, 8, 10, 13, 17)


def tasks_of(k: float) -> float:
    """Return the number of tasks with so many step sizes: ``k^(3/2) = (D G / b) sqrt(tau / 2 m)``, b = G D."""
    return 2 * M * k**3


def meeting(similarity: float) -> float:
    """Return the number of tasks from which V is the larger in the proof's ``V + D / k``."""
    return tasks_of(D / similarity) if similarity else math.inf


def step_sizes(k: int) -> Numbers:
    """Return ``c_j = D / (G j sqrt(m))``."""
    return D / (G * np.arange(1, k + 1) * math.sqrt(M))


def rate(tasks: int, k: int) -> float:
    """Return ``eta = sqrt(log k / (k tau)) / (m b)``."""
    return math.sqrt(math.log(k) / (k * tasks)) / (M * G * D)


def bound(tasks: int, similarity: float, k: int) -> float:
    """Return the supplement's bound on the expected regret of a task, before it is simplified (fifth line)."""
    c = step_sizes(k)
    spread = D**2 * (1 + math.log(tasks)) / tasks + similarity**2
    return 2 * M * G * D * math.sqrt(k * math.log(k) / tasks) + float((spread / (2 * c) + c * M * G**2).min())


def regrets(tasks: int, similarity: float, c: Numbers, generator: np.random.Generator, at_kink: float = 1.0) -> Numbers:
    """Return each task's regret with each step size: online gradient descent from the mean of earlier optima."""
    angles = generator.normal(size=(tasks, DIMENSIONS))
    centre = np.full(DIMENSIONS, 0.1 * D)
    optima = centre + similarity * angles / np.linalg.norm(angles, axis=1, keepdims=True)
    # The server mixes with 1/t, w <- (1 - 1/t) w + 1/t w*_t, which is the mean; the first task starts at 0.
    means = np.cumsum(optima, axis=0) / np.arange(1, tasks + 1)[:, None]
    starts = np.concatenate([np.zeros((1, DIMENSIONS)), means[:-1]])
    w = np.repeat(starts[:, None], len(c), axis=1)
    total = np.zeros((tasks, len(c)))
    for _ in range(M):
        x = generator.normal(size=(tasks, 1, DIMENSIONS))
        x /= np.linalg.norm(x, axis=2, keepdims=True)
        off = ((w - optima[:, None]) * x).sum(axis=2)
        total += G * np.abs(off)
        side = np.where(np.abs(off) > 1e-12, np.sign(off), at_kink)  # the mean of equal optima is rounded
        w -= c[:, None] * G * side[:, :, None] * x
        w *= np.minimum(1.0, D / 2 / np.maximum(np.linalg.norm(w, axis=2, keepdims=True), 1e-12))
    return total


@dataclass(frozen=True)
class Outcome:
    """What a run over so many tasks came to, a task."""

    tasks: int
    similarity: float
    at_kink: float
    seed: int
    arms: int
    regret: float
    best_fixed: float
    uniform: float
    bound: float


def run(k: int, similarity: float, seed: int, at_kink: float = 1.0) -> Outcome:
    """Run FedEx with one client a round, by the theorem's step sizes, number of tasks, eta and server mixing."""
    tasks = round(tasks_of(k))
    generator = np.random.default_rng([seed, tasks, round(1000 * similarity)])
    table, eta = regrets(tasks, similarity, step_sizes(k), generator, at_kink), rate(tasks, k)
    z, total = normalised(np.zeros(k)), 0.0
    for of_arms in table:
        place = int(sampled(z, np.array([generator.random()]))[0])
        total += float(of_arms[place])
        z = normalised(z - eta * gradient(z, [place], [of_arms[place]], [1.0], baseline=0.0))
    fixed, uniform = float(table.mean(axis=0).min()), float(table.mean())
    return Outcome(tasks, similarity, at_kink, seed, k, total / tasks, fixed, uniform, bound(tasks, similarity, k))


def slope(outcomes: Sequence[Outcome], of: str = "regret") -> float:
    """Return the slope of the logarithm of a regret over that of the number of tasks, by least squares."""
    x, y = (np.log([getattr(one, name) for one in outcomes]) for name in ("tasks", of))
    return float(np.polyfit(x, y, 1)[0])


def chart(outcomes: Sequence[Outcome]) -> Chart:
    """Return regret, best step size in hindsight and bound over the number of tasks: means over seeds."""
    marks: list[Line | Points] = []
    for colour, similarity in zip(COLOURS, SIMILARITIES, strict=False):
        ours = [one for one in outcomes if one.similarity == similarity and one.at_kink]
        tasks = sorted({one.tasks for one in ours})
        curves = {
            name: [fmean(getattr(one, name) for one in ours if one.tasks == count) for count in tasks]
            for name in ("regret", "best_fixed", "bound")
        }
        marks.append(Line(tasks, curves["regret"], f"regret, V = {similarity:g} D", colour))
        marks.append(Points(tasks, curves["regret"], colour=colour))
        marks.append(
            Line(tasks, curves["best_fixed"], "best fixed step size" if not similarity else "", colour, "dash")
        )
        marks.append(Line(tasks, curves["bound"], "bound" if not similarity else "", colour, "dot"))
    title = "Theorem 4.1: regret of a task"
    return Chart(title, "number of tasks", "regret", marks, x_log=True, y_log=True)


def main() -> None:
    """Run all numbers of tasks, and write the table and the picture beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    outcomes = [run(k, v, seed, kink) for v, kink in CASES for k in ARMS for seed in range(given.seeds)]
    here = Path(__file__).parent
    with (here / "results" / "regret.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(vars(outcomes[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(vars(one) for one in outcomes)
    draw(chart(outcomes)).figure.savefig(here / "regret.png", dpi=110)
    for v, kink in CASES:
        ours = [one for one in outcomes if (one.similarity, one.at_kink) == (v, kink)]
        print(f"V={v}, {kink:g} at a kink: meets V at {meeting(v):.0f} tasks")
        for count in sorted({one.tasks for one in ours}):
            same = [one for one in ours if one.tasks == count]
            names = ("regret", "best_fixed", "uniform", "bound")
            means = ", ".join(f"{name} {fmean(getattr(one, name) for one in same):.4f}" for name in names)
            spread = np.std([one.regret for one in same], ddof=min(1, len(same) - 1))
            print(f"  {count} tasks, k={same[0].arms}: {means}, standard deviation of regret {spread:.3f}")
        parts = {
            "before": [one for one in ours if one.tasks <= meeting(v)],
            "from there on": [one for one in ours if one.tasks >= meeting(v)],
        }
        for name, part in parts.items():
            if len({one.tasks for one in part}) > 1:
                kinds = ("regret", "best_fixed", "uniform")
                print(f"  slope {name}: " + ", ".join(f"{kind} {slope(part, kind):.2f}" for kind in kinds))


if __name__ == "__main__":
    main()
