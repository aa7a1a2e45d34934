"""What is drawn of FedEx's beliefs is what the history says."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from lightning_fedhpo import Choice, FedEx, SearchSpace, plots
from lightning_fedhpo.plots.chart import Band, Line, look
from lightning_fedhpo.plots.run_data import load
from tests.fits import fit
from tests.plots.plotted_runs import chosen, evolved, halved, halved_again
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


def test_beliefs_of_a_sweep_are_means_over_seeds() -> None:
    """Of the search's best arm, and probabilities by rank: each seed has configurations of its own."""
    results = [halved(), halved_again()]
    own = [[row for row in result.history if row["arm"] == result.best_arm] for result in results]
    methods = {"FedPop": [evolved()], "FedEx": results}
    band, line = plots.entropy.chart(methods, budget="steps", labels={"FedEx": "A"}, level=0.9).marks
    first, other = ([(row["ledger/local_steps"], row["fedex/entropy"]) for row in rows] for rows in own)
    at = max(first[0][0], other[0][0])
    held = [[value for spent, value in told if spent <= at][-1] for told in (first, other)]
    assert isinstance(line, Line) and isinstance(band, Band) and line.name == "A (2 seeds)"
    assert line.colour == band.colour == look(1)[0], "as in the other figures of the sweep, where FedPop is the first"
    assert (line.x[0], line.y[0]) == (at, pytest.approx(statistics.fmean(held)))
    assert line.y[-1] == pytest.approx(statistics.fmean([first[-1][1], other[-1][1]]))
    half = 6.313752 * statistics.stdev([first[-1][1], other[-1][1]]) / math.sqrt(2)  # Student's t, 90 %, one degree
    assert band.high[-1] - line.y[-1] == pytest.approx(half)
    chart = plots.probabilities.chart(methods, leaders=2)
    _, likely, _, second = chart.marks
    assert chart.note.endswith("since they have none: FedPop.") and second.name == "FedEx, 2nd (2 seeds)"
    last = [sorted(row[f"fedex/prob/{config}"] for config in range(5)) for *_, row in own]
    assert likely.y[-1] == pytest.approx(statistics.fmean([one[-1] for one in last]))
    assert second.y[-1] == pytest.approx(statistics.fmean([one[-2] for one in last]))


def test_a_sweep_without_beliefs() -> None:
    for figure in (plots.entropy, plots.probabilities):
        with pytest.raises(ValueError, match="of this sweep has"):
            figure.chart({"FedPop": [evolved()]})
