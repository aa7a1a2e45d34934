"""Fixed values: each client's own, and what of them is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lightning_fedhpo import Fixed
from lightning_fedhpo.testing import toy_run

OWN = {str(client): {"lr": 0.1 + client / 100, "momentum": 0.5} for client in range(8)}


def test_each_client_trains_with_its_own_values_over_those_of_all() -> None:
    fed, _, _ = toy_run(3, Fixed({"momentum": 0.5, "epochs": 2}, clients=OWN), cohort=8)
    assert {row["client"]: row["lr"] for row in fed.result.jobs} == {int(n): own["lr"] for n, own in OWN.items()}
    assert set(fed.result.jobs["momentum"]) == {0.5} and set(fed.result.jobs["epochs"]) == {2}
    best = fed.result.best
    assert best["client"] == {"momentum": 0.5, "epochs": 2, "batch_size": 8}, "what is the same for all"
    assert {own["lr"] for own in best["clients"].values()} == {own["lr"] for own in OWN.values()}


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({3: {"lr": 0.1}}, "must have values for every client of the federation, numbers 0 to 7, got 1 from 3 to 3"),
        ({"anna": {"lr": 0.1}}, "a client's number in `clients` must be a whole number, got 'anna'"),
        ({-1: {"lr": 0.1}}, "a client's number in `clients` must be at least 0"),
        ({0: {"lr": float("nan")}}, "the client 0's `lr` must be finite"),
        ({**OWN, "7": {"module.beta": 1.0}}, "'module.beta' reaches nothing"),
    ],
)
def test_values_of_other_clients_are_refused(clients: dict[Any, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        toy_run(1, Fixed(clients=clients))
