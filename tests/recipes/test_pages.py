"""The recipes' pages have the figures of their runs: means, deviations, paired leads with Student's intervals."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
STUDENT = {3: 4.30265, 5: 2.77645, 10: 2.26216}
"""The 97.5 % point of Student's t, by the number of seeds."""
Found = dict[tuple[str, ...], list[float]]


def percent(table: str, names: Sequence[str], metric: str) -> Found:
    """A tested figure in percent, by what tells runs apart, in the order of seeds."""
    found: Found = defaultdict(list)
    with (RECIPES / table).open(encoding="utf-8") as file:
        for row in sorted(csv.DictReader(file), key=lambda row: int(row["seed"])):
            found[tuple(row[name] for name in names)].append(100 * float(row[metric]))
    return found


def spread(values: Sequence[float]) -> list[float]:
    return [fmean(values), stdev(values)]


def lead(ours: Iterable[float], theirs: Iterable[float]) -> list[float]:
    """By how much ours are larger, and the ends of the interval."""
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    half = STUDENT[len(gaps)] * stdev(gaps) / math.sqrt(len(gaps))
    return [fmean(gaps), fmean(gaps) - half, fmean(gaps) + half]


def shown(page: str, label: str, expected: Sequence[float]) -> bool:
    """Whether a table of the page has these figures, in this order, in one of the lines with the label."""
    for line in (RECIPES / page / "README.md").read_text(encoding="utf-8").splitlines():
        left = list(expected)
        if line.startswith(f"| {label} |"):
            for figure in map(float, re.findall(r"[-+]?\d+\.\d+", line)):
                if left and abs(figure - left[0]) < 0.055:  # rounded, by a t with fewer digits
                    left.pop(0)
            if not left:
                return True
    return False


METHODS = {"fedtune": "FedTune", "random": "random", "hyperband": "Hyperband", "bayesian": "Bayesian (GP)"}


@pytest.mark.parametrize(("model", "method"), list(product(("mlp", "lenet"), METHODS)))
def test_fedtune(model: str, method: str) -> None:
    found = percent("fedtune/results/fashion_mnist.csv", ("model", "alpha", "method"), "test_acc")
    expected: list[float] = []
    for alpha in ("0.1", "0.5"):
        values, ours = found[model, alpha, method], found[model, alpha, "fedtune"]
        expected += spread(values) + (lead(ours, values) if method != "fedtune" else [])
    assert shown("fedtune", METHODS[method], expected)


COLUMNS = ("test_error_personalized", "test_error")
ROWS = {"": None, "+fedex": "+ FedEx", "+fedpop": "+ FedPop", "+fedpop[g]": "+ FedPop, level g only"}
FEMNIST = {"sha": ROWS | {"": "successive halving"}, "rs": {**dict(list(ROWS.items())[:3]), "": "random search"}}
FEMNIST["sha"]["+fedpop[l]"] = "+ FedPop, level l only"


@pytest.mark.parametrize(("search", "tuner"), [(search, tuner) for search in FEMNIST for tuner in FEMNIST[search]])
def test_fedpop_on_femnist(search: str, tuner: str) -> None:
    expected: list[float] = []
    for metric in COLUMNS:
        found = percent("fedpop/results/femnist.csv", ("method",), metric)
        values, ours = found[search + tuner,], found[f"{search}+fedpop",]
        expected += spread(values) + (lead(values, ours) if tuner != "+fedpop" else [])
    assert shown("fedpop", str(FEMNIST[search][tuner]), expected)


ALGORITHMS = {"fedavg": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD"}
SETTINGS = [*product(("500",), ("1.0", "0.5"), ALGORITHMS), ("2000", "1.0", "fedavg")]


@pytest.mark.parametrize(("rounds", "alpha", "algorithm"), SETTINGS)
def test_fedpop_on_cifar10(rounds: str, alpha: str, algorithm: str) -> None:
    labels = {"none": f"{ALGORITHMS[algorithm]}, random search", "fedex": "+ FedEx", "fedpop": "+ FedPop"}
    tables = [
        percent("fedpop/results/cifar10.csv", ("rounds", "alpha", "algorithm", "tuner"), metric) for metric in COLUMNS
    ]
    for tuner, label in labels.items():
        expected: list[float] = []
        for found in tables:
            values, ours = found[rounds, alpha, algorithm, tuner], found[rounds, alpha, algorithm, "fedpop"]
            expected += spread(values) + (lead(values, ours) if tuner != "fedpop" else [])
        assert shown("fedpop", label, expected), label


def test_fedex() -> None:
    personal, whole = (percent("fedex/results/femnist.csv", ("tuner", "final", "rounds"), m) for m in COLUMNS)
    for tuner, label in {"none": "successive halving", "fedex": "+ FedEx"}.items():
        final = [found[tuner, "True", "2000"] for found in (personal, whole)]
        assert shown("fedex", label, [*spread(final[0]), *spread(final[1])])
    for _, _, rounds in [key for key in personal if key[0] == "none" and key[1] == ""]:
        cells = [found[tuner, "", rounds] for found in (personal, whole) for tuner in ("none", "fedex")]
        assert shown("fedex", f"{int(rounds):,}", [figure for cell in cells for figure in spread(cell)]), rounds
