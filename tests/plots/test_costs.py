"""The budget by what became of the arms."""

from __future__ import annotations

from lightning_fedhpo import plots
from lightning_fedhpo.plots.chart import Band
from tests.plots.plotted_runs import evolved, halved


def test_what_was_spent_adds_up() -> None:
    """Nine arms of four rounds, of which three go on to round 9 and one to round 10."""
    bands = {mark.name: mark for mark in plots.spending.chart(halved()).marks if isinstance(mark, Band)}
    best, middle, first = bands.values()
    assert list(bands) == [
        f"arm {halved().best_arm}, the best",
        "eliminated after 9 rounds (2 arms)",
        "eliminated after 4 rounds (6 arms)",
    ]
    assert list(best.high) == list(range(1, 11))
    assert [high - low for high, low in zip(middle.high, middle.low, strict=True)] == [*range(2, 19, 2), 18]
    assert list(first.high) == [row["ledger/rounds"] for row in halved().history if row["arm"] == halved().best_arm]


def test_the_note_has_the_ledger() -> None:
    note = plots.spending.chart(evolved()).note
    assert note.startswith("In all: 42 rounds, 126 client updates")
