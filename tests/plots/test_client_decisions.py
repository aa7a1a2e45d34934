"""FedTune's figures are those of the history, client by client."""

from __future__ import annotations

import numpy as np

from lightning_fedhpo import plots
from tests.plots.plotted_runs import chosen


def test_every_client_has_a_row() -> None:
    history = chosen().history
    for figure, name in ((plots.client_choices, "argmax"), (plots.credits, "credit")):
        (image,) = figure(chosen()).get_images()
        expected = [history[f"fedtune/client/{client}/{name}"] for client in range(6)]
        np.testing.assert_allclose(np.asarray(image.get_array()), expected)


def test_a_cell_says_what_the_candidate_is() -> None:
    result = chosen()
    (cells,) = plots.client_choices.chart(result).marks
    row = next(r for r in result.configs if r["client"] == 4 and r["argmax"])
    head, values, chance = cells.hover[4][-1].splitlines()
    assert (head, values) == ("client 4, round 4", f"lr {row['lr']:.3g}, weight_decay {row['weight_decay']:.3g}")
    assert chance == f"probability {row['probability']:.2f}"
