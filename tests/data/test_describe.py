"""The description says what is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural


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


@pytest.mark.parametrize("classes", [3, 50, None])
def test_the_picture(classes: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, partition = torch.zeros(600), Dirichlet(60, 0.3) if classes else Iid(9)
    data = FederatedData((x, torch.arange(600) % classes) if classes else [x], partition)
    data.describe(str(tmp_path / "clients.png"))
    assert (tmp_path / "clients.png").read_bytes().startswith(b"\x89PNG")
    assert ("none that are one integer per example" in capsys.readouterr().out) == (classes is None)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lightning-fedhpo\[plot\]'"):
        FederatedData([torch.zeros(10)], Iid(2)).describe(tmp_path / "clients.png")
