"""The ledger, counted again from the rows of the jobs and the size of the model."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_fedhpo import FedAvg, FedDyn, FedEx, Float, Int, Scaffold, SearchSpace, SuccessiveHalving
from lightning_fedhpo.testing import ToyModule, toy_run
from tests.fits import fit

SPACE = SearchSpace(
    client={"lr": Float(1e-3, 0.5, log=True), "epochs": Int(1, 3)}, server={"lr": Float(0.3, 1.0, log=True)}
)
BYTES = 4 * (6 * 8 + 8 + 8 * 3 + 3)  # the toy's two layers, in single precision


@pytest.mark.parametrize("before", [False, True])
def test_every_count_follows_from_the_jobs(before: bool) -> None:
    search = SuccessiveHalving(SPACE, eta=2, eliminations=1, budget=6, max_rounds=4)
    fed, _, _ = toy_run(4, search, FedEx(SPACE, configs=4), score_before=before)
    jobs = list(fed.result.jobs)
    assert fed.result.ledger == {
        "rounds": len({(row["round"], row["arm"]) for row in jobs}),
        "client_updates": len(jobs),
        "local_steps": sum(row["local_steps"] for row in jobs),
        "examples": sum(row["epochs"] * row["train_examples"] for row in jobs),
        "evaluations": sum(row["val_examples"] * (1 + before) for row in jobs),
        "bytes_up": len(jobs) * BYTES,
        "bytes_down": len(jobs) * BYTES,
    }


@pytest.mark.parametrize(("make", "models"), [(FedAvg, 1), (FedDyn, 1), (Scaffold, 2)])
def test_what_travels_beside_the_model(make: Any, models: int) -> None:
    """SCAFFOLD's control variate does, both ways; FedDyn's server adds its mean drift to the model that it sends."""
    ledger = toy_run(2, algorithm=make())[0].result.ledger
    assert ledger["bytes_up"] == ledger["bytes_down"] == 6 * models * BYTES


@pytest.mark.filterwarnings("ignore:client .* failed in round")
def test_a_client_that_fails_has_received_the_model_and_sent_nothing() -> None:
    class Breaks(ToyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if self.trainer.current_epoch == 1:
                raise RuntimeError("no")
            super().validation_step(batch, batch_idx)

    ledger = fit(2, module=Breaks(), on_error="drop")[0].result.ledger
    assert (ledger["client_updates"], ledger["bytes_down"], ledger["bytes_up"]) == (6, 6 * BYTES, 3 * BYTES)
