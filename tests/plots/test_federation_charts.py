"""The federation: sizes and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lightning_fedhpo import plots
from lightning_fedhpo.testing import toy_data
from tests.plots.plotted_runs import halved
from tests.runs import rows


def test_labels_add_up_to_the_clients_examples() -> None:
    data = toy_data(clients=5)
    bars = plots.client_labels(data).containers
    ends = np.array([[bar.get_x() + bar.get_width() for bar in one] for one in bars])
    assert sorted(ends[-1]) == sorted(data.sizes("train"))
    assert sum(bar.get_width() for bar in bars[2]) == (np.asarray(data.labels("train"))[data.order("train")] == 2).sum()


def test_sizes_of_a_federation_and_of_the_clients_of_a_run() -> None:
    data = toy_data(clients=5)
    for source, sizes in ((data, data.sizes("train")), (halved(), toy_data().sizes("train"))):
        (bars,) = plots.client_sizes.chart(source).marks
        assert sum(bars.values) == len(sizes)
        assert f"{sizes.sum():,} in all" in plots.client_sizes.chart(source).note


def test_a_folder_knows_the_labels(folder: Path) -> None:
    written = rows(folder / "federation.csv")
    total = sum(float(row["label/1"]) for row in written)
    chart = plots.client_labels.chart(folder)
    (ones,) = (mark for mark in chart.marks if mark.name == "label 1")
    assert sum(ones.values) == total
