"""The table of the five papers: every figure of ours is in a table of results, and every row's settings compose."""

from __future__ import annotations

import math
import re
import shlex
from itertools import product
from statistics import fmean, stdev

import pytest
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser

from tests.recipes.test_pages import COLUMNS, RECIPES, STUDENT, percent

PAGE = (RECIPES / "README.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")] for line in PAGE.splitlines() if line.count(" | ") == 5
]
CELLS = [row for row in ROWS if re.match(r"(Table|Figure)s? \d", row[0])]
OURS = {row[0]: row[5] for row in CELLS}
METRICS = dict(zip(("personalized", "global"), COLUMNS, strict=True))
FIGURE = re.compile(r"(-?\d+\.\d) \[(-?\d+\.\d), (-?\d+\.\d)\]")
Cells = list[list[float]]
TUNERS = ("none", "fedex", "fedpop")


def found() -> dict[str, Cells]:
    """Every row that has figures of ours, with the values of its methods over seeds."""
    cells: dict[str, Cells] = {}
    for target, metric in METRICS.items():
        halving = percent("fedex/results/femnist.csv", ("tuner", "final", "rounds"), metric)
        both = ("none", "fedex")
        cells[f"Table 1, FEMNIST by writer, halving, {target}"] = [halving[tuner, "True", "2000"] for tuner in both]
        if target == "personalized":
            cells["Figure 4, FEMNIST"] = [halving[tuner, "", "1026"] for tuner in both]
        writers = percent("fedpop/results/femnist.csv", ("method",), metric)
        cells[f"Table 1, FEMNIST by writer, random, {target}"] = [writers["rs",], writers["rs+fedex",]]
        for search, short in (("random", "rs"), ("halving", "sha")):
            errors = [writers[short + tuner,] for tuner in ("", "+fedex", "+fedpop")]
            cells[f"Table 1, FedPop, FEMNIST by writer, {search}, {target}"] = right(errors)
        photos = percent("fedpop/results/cifar10.csv", ("rounds", "alpha", "algorithm", "tuner"), metric)
        for alpha, algorithm in product(("1.0", "0.5"), ("fedavg", "fedprox", "scaffold")):
            titles = {
                "fedprox": f"Table 4, FedProx, Dirichlet {alpha}",
                "scaffold": f"Table 4, SCAFFOLD, Dirichlet {alpha}",
            }
            label = titles.get(algorithm, f"Table 1, FedPop, CIFAR-10, Dirichlet {alpha}, random")
            cells[f"{label}, {target}"] = right([photos["500", alpha, algorithm, tuner] for tuner in TUNERS])
        label = f"Table 1, FedPop, CIFAR-10, Dirichlet 1.0, random, half, {target}"
        cells[label] = right([photos["2000", "1.0", "fedavg", tuner] for tuner in TUNERS])
    clothes = percent("fedtune/results/fashion_mnist.csv", ("model", "alpha", "method"), "test_acc")
    for model, name, (by_alpha, by_clients) in (("lenet", "LeNet-5", "24"), ("mlp", "MLP", "35")):
        for alpha in ("0.1", "0.5"):
            values = [clothes[model, alpha, method] for method in ("fedtune", "random", "hyperband", "bayesian")]
            cells[f"Table {by_alpha}, {name}, Fashion-MNIST, Dirichlet {alpha}"] = values
            if alpha == "0.1":
                cells[f"Table 1 and figure 2, {name}, Fashion-MNIST, 30 rounds"] = values
                cells[f"Table {by_clients}, {name}, Fashion-MNIST, 10 clients"] = values
    maps = {"cifar10.csv": "64", "cifar10-128.csv": "128", "cifar10-256.csv": "256", "imdb-4096.csv": "4096"}
    for file, bins in (maps | {"imdb.csv": "65536"}).items():
        searches = percent(f"feature_maps/results/{file}", ("bins", "method"), "validation")
        data = "IMDB" if "imdb" in file else "CIFAR-10"
        methods = ("random", "halving", "exponentiated")
        cells[f"Figures 1 and 2, {data}, {int(bins):,} features"] = [searches[bins, method] for method in methods]
    return cells


def right(errors: Cells) -> Cells:
    """Accuracies in place of errors."""
    return [[100 - value for value in values] for values in errors]


def test_every_figure_of_ours_is_of_the_results() -> None:
    cells = found()
    assert len(OURS) == len(CELLS)
    assert {label for label, ours in OURS.items() if ours != "not run"} == set(cells)
    for label, methods in cells.items():
        shown = [[float(one) for one in figures] for figures in FIGURE.findall(OURS[label])]
        assert len(shown) == len(methods), label
        for figures, values in zip(shown, methods, strict=True):
            half = STUDENT[len(values)] * stdev(values) / math.sqrt(len(values))
            expected = [fmean(values), fmean(values) - half, fmean(values) + half]
            assert figures == pytest.approx(expected, abs=0.0501), label
            assert f"; {len(values)} seeds" in OURS[label], label


def last(text: str) -> str:
    """An override, of a sweep's values the last one."""
    override = OverridesParser.create().parse_override(text)
    if not override.is_sweep_override():
        return text
    return f"{override.get_key_element()}={list(override.sweep_string_iterator())[-1]}"


@pytest.mark.slow  # some sixty configurations
def test_the_overrides_of_rows_compose() -> None:
    """One row of those that differ in numbers only."""
    spans = [span for row in ROWS for span in re.findall(r"`(\+[^`]+)`", row[1])]
    commands = {re.sub(r"[\d.]+", "0", span): span for span in spans}.values()
    assert len(commands) > 40
    with initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        for command in commands:
            overrides = [last(text) for text in shlex.split(command)]
            cfg = compose("config", [f"hydra.searchpath=[file://{RECIPES}]", *overrides])
            assert cfg.trainer.max_epochs >= 200, command  # the papers' shortest runs
