"""Hyperparameters of several parameter groups, also where a schedule owns their rates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lightning_fedhpo.binding.binding import Binding, LocalSettings
from lightning_fedhpo.binding.optimizer_reset import LocalOptimizers


def grouped(*groups: dict[str, float], kind: Any = torch.optim.SGD, schedule: Any = None) -> tuple[Any, Any]:
    """Return an optimizer with one parameter a group, and what binds names to it."""
    optimizer = kind([{"params": [nn.Parameter(torch.ones(1))], **group} for group in groups], lr=0.1)
    schedulers = [schedule(optimizer)] if schedule else []
    local = LocalOptimizers([optimizer], schedulers)
    return optimizer, lambda *names: Binding(nn.Linear(1, 1), local, LocalSettings(), names)


@pytest.mark.parametrize(
    ("name", "own", "value", "expected"),
    [
        ("lr", [0.01, 0.1, 0.0], 0.2, [0.2, 2.0, 0.0]),
        ("weight_decay", [0.01, 0.0], 0.3, [0.3, 0.0]),
        ("weight_decay", [0.0, 0.01], 0.3, [0.0, 0.3]),
        ("weight_decay", [0.0, 0.0], 0.3, [0.3, 0.3]),
        ("momentum", [0.5, 0.9, 0.0], 0.8, [0.8, 0.8, 0.0]),
        ("momentum", [0.0, 0.0], 0.8, [0.8, 0.8]),
    ],
)
def test_groups_keep_their_author_s_ratios(name: str, own: list[float], value: float, expected: list[float]) -> None:
    optimizer, bind = grouped(*({name: number} for number in own))
    binding = bind(name)
    assert binding.apply({name: value})[name] == value
    assert [group[name] for group in optimizer.param_groups] == pytest.approx(expected)
    binding.restore()
    assert [group[name] for group in optimizer.param_groups] == own


def test_one_group_s_value_goes_over_that_of_all() -> None:
    optimizer, bind = grouped({"lr": 0.1}, {"lr": 0.2})
    used = bind("lr.1", "lr").apply({"lr.1": 0.05, "lr": 1.0})
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.05]
    assert (used["lr.1"], used["lr"]) == (0.05, 1.0)
    with pytest.raises(ValueError, match=r"'lr\.2' reaches nothing"):
        bind("lr.2")


def test_groups_keep_their_ratios_under_a_schedule() -> None:
    optimizer, bind = grouped(
        {"lr": 0.1}, {"lr": 0.2}, schedule=lambda one: torch.optim.lr_scheduler.ExponentialLR(one, 0.5)
    )
    for values, expected in (({"lr": 1.0}, [0.5, 1.0]), ({"lr.1": 0.4}, [0.05, 0.2])):
        binding = bind(*values)
        assert binding.apply(values).items() >= values.items()
        optimizer.step()
        binding._schedulers[0].step()
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(expected)
        binding.restore()


@pytest.mark.parametrize(
    ("kind", "name"), [(torch.optim.Adam, "beta1"), (torch.optim.Adam, "betas"), (torch.optim.SGD, "momentum")]
)
def test_what_a_cycle_writes_over_is_refused(kind: Any, name: str) -> None:
    def schedule(optimizer: Any, **options: Any) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9, **options)

    options = {"momentum": 0.9} if name == "momentum" else {}
    optimizer, bind = grouped(options, options, kind=kind, schedule=lambda one: schedule(one, cycle_momentum=False))
    optimizer.param_groups[1]["max_lr"] = 0.4
    bind("max_lr").apply({"max_lr": 0.5})
    assert [group["max_lr"] for group in optimizer.param_groups] == pytest.approx([0.5, 2.0])
    with pytest.raises(ValueError, match=f"'{name}' would not take effect: OneCycleLR .*cycle_momentum=False"):
        grouped(options, kind=kind, schedule=schedule)[1](name)
    grouped(options, kind=kind, schedule=lambda optimizer: schedule(optimizer, cycle_momentum=False))[1](name)
    if kind is torch.optim.Adam:
        grouped(options, kind=kind, schedule=schedule)[1]("beta2")
