"""A search that has no score to decide by says so after the first round, and ends with an error."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lightning_fedhpo import (
    ClientsInTurn,
    FederatedData,
    FederatedLoop,
    FedEx,
    Natural,
    RandomSearch,
    SuccessiveHalving,
    seeding,
)
from lightning_fedhpo.run import result_text
from lightning_fedhpo.run.unscored import UnscoredError
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_tensors
from lightning_fedhpo.testing.contract_runs import toy_space

HALVING = {"eta": 2, "eliminations": 1, "budget": 6, "max_rounds": 4}


ORDER = seeding.rng(0, seeding.COHORT).permutation(6).tolist()
"""The clients by their turn: two take part in a round."""


def _data(scored: int) -> FederatedData:
    """Six clients, of which one has examples enough to keep some for validation."""
    owner = torch.repeat_interleave(torch.arange(6), torch.tensor([30 if i == scored else 2 for i in range(6)]))
    return FederatedData(toy_tensors(len(owner)), Natural(owner), batch_size=8)


def _fit(data: FederatedData, *callbacks: Any, rounds: int = 4, **loop: Any) -> FederatedLoop:
    fed = FederatedLoop(cohort=2, clients=ClientsInTurn(), executor="sequential", **loop)
    quiet_trainer(rounds, fed, *callbacks).fit(ToyModule(), datamodule=data)
    return fed


@pytest.mark.parametrize(
    ("callbacks", "says"),
    [
        ([lambda: SuccessiveHalving(toy_space(), **HALVING)], "1 arms were to be eliminated after round 1"),
        ([lambda: RandomSearch(toy_space(), budget=4, max_rounds=2)], "the search is over after round 1"),
        ([lambda: FedEx(toy_space(), configs=4)], "the search is over after round 1"),
    ],
)
def test_nobody_who_takes_part_has_validation_examples(
    callbacks: list[Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(result_text.LOGGER, "info", told.append)
    rounds = 4 if "eliminated" in says else 2
    with (
        pytest.warns(UserWarning, match="nobody who took part in round 0 of .* has validation examples") as said,
        pytest.raises(UnscoredError, match=f"{says}, and no arm has ever had a score: 1 of 6 clients have validation"),
    ):
        _fit(_data(scored=ORDER[5]), *(make() for make in callbacks), rounds=rounds)
    assert sum("nobody who took part" in str(one.message) for one in said) == 1
    assert [line.rpartition("; ")[2] for line in told] == ["none has a finite score."] * ("eliminated" in says)


def test_examples_of_the_server_that_are_not_finite() -> None:
    x, y = toy_tensors(10)
    search = RandomSearch(toy_space(), budget=4, max_rounds=2)
    with (
        pytest.warns(UserWarning, match="the server's examples gave no arm of round 0 a finite val_loss"),
        pytest.raises(UnscoredError, match="the server's examples have given no finite score"),
    ):
        _fit(toy_data(), search, target="server", server_data=torch.utils.data.TensorDataset(x * math.nan, y))


@pytest.mark.filterwarnings("ignore:nobody who took part")
def test_a_round_without_validation_examples_leaves_the_score() -> None:
    fed = _fit(_data(scored=ORDER[1]), SuccessiveHalving(toy_space(), **HALVING))
    by_arm = {arm: [row["score"] for row in fed.result.history if row["arm"] == arm] for arm in (0, 1)}
    assert [len(set(scores[:2])) for scores in by_arm.values()] == [1, 1]  # nobody of round 1 has any
    assert fed.result.best_arm == min(by_arm, key=lambda arm: by_arm[arm][1])
    assert all(map(math.isfinite, fed.result.history["score"]))
