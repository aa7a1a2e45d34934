"""What is drawn of FedEx's beliefs is what the history says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lightning_fedhpo import Choice, FedEx, SearchSpace, plots
from lightning_fedhpo.plots.run_data import load
from tests.fits import fit
from tests.plots.plotted_runs import chosen, halved
from tests.runs import rows


def test_the_curves_are_the_probabilities_of_one_arm(folder: Path) -> None:
    best = load(folder).best_arm
    written = [row for row in rows(folder / "history.csv") if int(row["arm"]) == best]
    drawn = {line.get_label().split(":")[0]: list(line.get_ydata()) for line in plots.probabilities(folder).get_lines()}
    for config in range(4):
        assert drawn[str(config)] == [float(row[f"fedex/prob/{config}"]) for row in written]
    assert sum(drawn[str(config)][-1] for config in range(4)) == pytest.approx(1)


def test_the_leaders_are_named_by_their_values_and_the_last_one_leads() -> None:
    result = halved()
    probabilities = [result.history[f"fedex/prob/{config}"][-1] for config in range(5)]
    last = max(range(5), key=probabilities.__getitem__)
    chart = plots.probabilities.chart(result, leaders=2)
    grey, first = chart.marks[1], chart.marks[2]
    assert grey.name == "the other 3" and len(grey.y) == 3 * 11  # ten rounds each, and a gap
    values = next(row for row in result.configs if row["arm"] == result.best_arm and row["config"] == str(last))
    assert first.name == f"{last}: lr {values['lr']:.3g}, epochs {values['epochs']}"
    assert [math.isnan(y) for y in grey.y].count(True) == 3


def test_entropy_and_the_most_likely_configuration() -> None:
    result = halved()
    own = [row for row in result.history if row["arm"] == result.best_arm]
    undecided, entropy = plots.entropy(result).get_lines()[-2:]
    assert list(entropy.get_ydata()) == [row["fedex/entropy"] for row in own]
    assert undecided.get_ydata()[0] == pytest.approx(math.log(5))
    assert list(plots.most_likely(result).get_lines()[-1].get_ydata()) == [row["fedex/mle"] for row in own]


def test_the_entropy_of_several_distributions() -> None:
    """FedTune has four candidates for each client; two values times three are six combinations."""
    chart = plots.entropy.chart(chosen())
    assert chart.marks[0].y[0] == pytest.approx(math.log(4))
    assert chart.y_range == (0.0, pytest.approx(1.05 * math.log(4))), "a small fall looks small"
    space = SearchSpace(client={"lr": Choice([0.1, 0.2]), "epochs": Choice([1, 2, 3])})
    result = fit(2, FedEx(space, configs=40, epsilon=1.0, factorized=True))[0].result
    assert plots.entropy.chart(result).marks[0].y[0] == pytest.approx(math.log(6))
    assert plots.probabilities.chart(result).title == "Probability of each of 5 values in arm 0"


def test_an_arm_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="from 0 to 8, got 9"):
        plots.probabilities(halved(), arm=9)
