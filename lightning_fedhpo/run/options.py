"""The options of a federated run: checked when they are given, fixed afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, Literal

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo.algorithms import Algorithm, FedAvg
from lightning_fedhpo.arguments import MOST, MOST_EPOCHS, check_kinds, number, whole
from lightning_fedhpo.arms.monitor_mode import doubtful_mode
from lightning_fedhpo.executors.settings import Setting, setting_of
from lightning_fedhpo.participation import Devices, NoisyScores, Participation, UniformClients
from lightning_fedhpo.run.identity import OnDifference
from lightning_fedhpo.seeding import MOST_SEED


@dataclass(frozen=True, eq=False, repr=False)
class LoopOptions:
    """The arguments of :class:`~lightning_fedhpo.FederatedLoop`, which documents them."""

    algorithm: Algorithm = None  # type: ignore[assignment]  # FedAvg: an object as a default cannot be written to YAML
    cohort: int = 10
    monitor: str | None = "val_loss"
    mode: Literal["min", "max"] = "min"
    target: Literal["personalized", "global", "server"] = "personalized"
    executor: Literal["auto", "sequential", "vectorized"] | Setting = "auto"
    _: KW_ONLY
    epochs: int = 1
    seed: int = 0
    score_before: bool | None = None
    evaluate_at: int | Sequence[int] | None = None
    evaluate_clients: int | None = None
    on_error: Literal["raise", "drop"] = "raise"
    on_difference: OnDifference = "raise"
    log_arms: int | Literal["all"] = 3
    server_data: Any = None
    retrain: int | None = None
    verify: bool = True
    clients: Participation = None  # type: ignore[assignment]  # UniformClients
    devices: Devices | None = None
    client_memory: float = 256.0
    noise: NoisyScores | None = None
    schedules: Literal["job", "rounds"] = "job"
    folder: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name, default in {"algorithm": FedAvg, "clients": UniformClients}.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default())
        setting_of(self.executor)
        check_kinds(LoopOptions, vars(self))
        highest = {"epochs": MOST_EPOCHS, "seed": MOST_SEED}
        for name in ("cohort", "epochs", "seed", "evaluate_clients", "retrain"):
            if (given := getattr(self, name)) is not None:
                plain = whole(name, given, low=0 if name == "seed" else 1, high=highest.get(name, MOST))
                object.__setattr__(self, name, plain)  # a plain number, also for numpy's
        if self.log_arms != "all":
            object.__setattr__(self, "log_arms", whole("log_arms", self.log_arms, low=0))
        number("client_memory", self.client_memory, low=0, high=MOST)
        check_evaluation(self.evaluate_at)
        if self.monitor is None and self.target != "personalized":
            raise ValueError(
                f'`target="{self.target}"` names a score, which `monitor=None` does without: name a monitor.'
            )
        if self.monitor is None and self.noise is not None:
            raise ValueError("`noise` is on clients' scores, which `monitor=None` does without: name a monitor.")
        if self.monitor is not None and (doubt := doubtful_mode(self.monitor, self.mode)):
            rank_zero_warn(doubt)

    @property
    def sign(self) -> float:
        """1 where smaller scores are better, -1 where larger ones are."""
        return -1.0 if self.mode == "max" else 1.0


def check_evaluation(at: int | Sequence[int] | None) -> None:
    """Check numbers of rounds at which to test."""
    numbers = at if isinstance(at, Sequence) else [at]
    if not numbers:
        raise ValueError("`evaluate_at` must have a number of rounds, got an empty list: None does without such tests.")
    for one in () if at is None else numbers:
        whole("evaluate_at", one)
