"""Fixed values: each client's own, and what of them is refused."""

from __future__ import annotations

import re
from pathlib import Path
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


BOTH = "client: {lr: 0.1}\nserver: {}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "best.yaml must have the sections client and server, got [1, 2]"),
        ("client: {lr: 0.1}", "best.yaml has no section 'server', such as `server: {}`"),
        ("client:\n  lr: [0.1\nserver: {}", "best.yaml cannot be read as a run's best.yaml (ParserError: "),
        ("client: {lr: 0.1, lr: 0.2}\nserver: {}", "while constructing a mapping, in line 1)"),
        ("client: 3\nserver: {}", "the section 'client' of"),
        ("client: {lr: {a: 1}}\nserver: {}", "must be one value, got {'a': 1}"),
        ("client: {lr: high}\nserver: {}", "`lr` must be a number, got 'high'"),
        ("client: {lr: .nan}\nserver: {}", "best.yaml: the client's `lr` must be finite, got nan"),
        ("client: {module.beta: 1}\nserver: {}", "'module.beta' reaches nothing"),
        ("client: {}\nserver: {momentm: 0.5}", "Did you mean 'momentum'"),
        (
            BOTH + "cliens: {0: {lr: 0.2}}",
            "best.yaml has a section 'cliens' that means nothing: there are client",
        ),
        (BOTH + "clients: [1]", "must have clients' values by number, each by name, got [1]"),
        (
            BOTH + "clients: {0: {lr: 0.1}}",
            "best.yaml must have values for every client of the federation",
        ),
    ],
)
def test_a_file_that_was_changed_by_hand_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "best.yaml").write_text(text)
    with pytest.raises((TypeError, ValueError), match=re.escape(message)) as told:
        toy_run(1, Fixed(tmp_path / "best.yaml"))
    assert "\n" not in str(told.value)


def test_a_file_is_there_and_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file at"):
        Fixed(tmp_path / "best.yaml")
    (tmp_path / "best.yaml").write_text("client: {lr: 1e-2}\nserver: {}")  # as YAML 1.2 and people write it
    assert Fixed(str(tmp_path / "best.yaml")).identity()["client"] == {"lr": 0.01}
    with pytest.raises(ValueError, match="a file that has all of them"):
        Fixed({"lr": 0.1}, file=tmp_path / "best.yaml")


def test_values_of_another_method_are_told(tmp_path: Path) -> None:
    (tmp_path / "best.yaml").write_text(BOTH + "algorithm: {name: FedOpt, optimizer: adam}\nschedules: job\n")
    with pytest.warns(UserWarning, match=r"found with algorithm FedOpt\(optimizer='adam'\), and this run has FedAvg"):
        toy_run(1, Fixed(tmp_path / "best.yaml"))
