"""The state of a run: what a checkpoint holds beside the states of tuner and search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lightning_fedhpo.run.population import Population
from lightning_fedhpo.run.records import Records


@dataclass
class RunState:
    """What changes from round to round, and what the dry run has found.

    Attributes:
        arms: The run's arms; none before the first round.
        records: What is written down.
        phase: A checkpoint of an ``"aggregation"`` cannot be resumed.
        identity: The settings that a checkpoint of the run must agree with.
        moving: The tensors that training changes beside the weights; None before the dry run.
    """

    arms: Population
    records: Records
    phase: Literal["between rounds", "round", "aggregation"] = "between rounds"
    identity: dict[str, Any] = field(default_factory=dict)
    moving: list[str] | None = None
