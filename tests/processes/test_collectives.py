"""Values of every process."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, distributed

from lightning_fedhpo.processes import collectives


@pytest.mark.parametrize(("length", "calls"), [(100, 1), (100_000, 2)])
def test_a_value_beyond_a_packet_takes_a_second_call(monkeypatch: pytest.MonkeyPatch, length: int, calls: int) -> None:
    sizes = []

    def all_gather(received: list[Tensor], sent: Tensor) -> None:
        sizes.append(sent.numel())
        for one in received:
            one.copy_(sent)

    monkeypatch.setattr(collectives, "world", lambda: 2)
    monkeypatch.setattr(collectives, "rank", lambda: 0)
    monkeypatch.setattr(distributed, "get_backend", lambda: "gloo")
    monkeypatch.setattr(distributed, "all_gather", all_gather)
    value = {"loss": torch.arange(length), "name": "x" * length}

    own, other = collectives.gather(value, at="here")

    assert len(sizes) == calls
    assert own is value
    assert other["name"] == value["name"]
    assert torch.equal(other["loss"], value["loss"])
