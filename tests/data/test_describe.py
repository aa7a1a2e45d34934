"""The description says what is there."""

from __future__ import annotations

import pytest
import torch

from lightning_fedhpo.data import FederatedData, Iid, Natural
from lightning_fedhpo.data.describe import client_table


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    # Client 0 has ten examples of label 3, client 1 has two of label 8.
    data = FederatedData((torch.zeros(12), torch.tensor([3] * 10 + [8] * 2)), Natural([0] * 10 + [1] * 2))
    data.describe()
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("2 clients by Natural")
    assert lines[2:4] == ["train 10 2 5 8 0", "val 1 0 0 1 1"]
    assert lines[5:7] == [
        "Clients without validation examples train, and take no part in scores.",
        "labels 3: 80.0%, 8: 20.0%",
    ]
    # Of 8 and 2 training examples: |1 - 0.8| = 0.2 for the first, 0.8 for the second.
    assert lines[7] == "per client 1 of 2 labels (median), skew 0.50 (0: all alike, most skewed client 0.80)"
    FederatedData((torch.zeros(100), torch.arange(100) % 25), Iid(4)).describe()
    assert ", and 15 more" in capsys.readouterr().out


def test_the_table_of_clients() -> None:
    """Client 0 trains on ten examples less one for validation and one for test, of label 3."""
    data = FederatedData((torch.zeros(12), torch.tensor([3] * 10 + [8] * 2)), Natural([0] * 10 + [1] * 2))
    table = client_table(data)
    assert table == {
        "client": [0, 1],
        "train": [8, 2],
        "val": [1, 0],
        "test": [1, 0],
        "label/3": [8, 0],
        "label/8": [0, 2],
    }
    assert list(client_table(FederatedData([torch.zeros(10)], Iid(2)))) == ["client", "train", "val", "test"]


def test_examples_are_not_read_for_a_run_s_folder() -> None:
    """Labels in a column are at hand, those in the examples of a list are read only where it is asked for."""
    examples = [(torch.zeros(1), number % 2) for number in range(12)]
    listed = FederatedData(examples, Iid(2))
    assert "label/1" not in client_table(listed, read=False)
    assert "label/1" in client_table(listed)
    assert "label/1" in client_table(listed, read=False)  # known by now
    given = FederatedData(examples, Iid(2), targets=[0, 1] * 6)
    named = FederatedData((torch.zeros(12), torch.arange(12) % 2), Iid(2))
    assert all("label/1" in client_table(data, read=False) for data in (given, named))


def test_the_table_of_many_clients_is_bounded() -> None:
    data = FederatedData((torch.zeros(6000), torch.arange(6000) % 300), Iid(2000), fractions=(1.0, 0.0, 0.0))
    table = client_table(data)
    assert len(table["client"]) == 1000
    assert len([name for name in table if name.startswith("label/")]) == 100
    assert sum(count is not None for count in table["label/0"]) == 40
