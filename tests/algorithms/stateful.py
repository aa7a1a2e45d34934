"""A method with state on the server and on clients, as a user may write one: SCAFFOLD's control variates, option II."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_fedhpo import FedAvg
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.types import ClientResult, Config


class Controls(FedAvg):
    """FedAvg whose clients correct their drift by what the others did."""

    travels = ("control",)

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        return {"control": [torch.zeros_like(weight, requires_grad=False) for weight in weights]}

    def carried(self, arm: Arm, client: int | None) -> Sequence[Tensor]:
        own = arm.kept(client, "control")
        if own is None:
            return arm.server_state["control"]
        return [all_ - mine for all_, mine in zip(arm.server_state["control"], own, strict=True)]

    def added_gradient(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], hyperparameters: Config, carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        return carried

    def receive(self, arm: Arm, result: ClientResult) -> None:
        super().receive(arm, result)
        way = result.local_steps * result.used["lr"]
        moved = [(old.detach() - new) / way for old, new in zip(arm.weights, result.weights, strict=True)]
        change = [m - c for m, c in zip(moved, arm.server_state["control"], strict=True)]  # c_i' - c_i
        own = arm.kept(result.job.client, "control") or [torch.zeros_like(one) for one in change]
        arm.keep(result.job.client, "control", [mine + more for mine, more in zip(own, change, strict=True)])
        arm.add_state("control", change)

    def aggregate(self, arm: Arm) -> None:
        total = arm.state_sum("control")
        arm.server_state["control"] = [
            (one + more / self.clients).to(one) for one, more in zip(arm.server_state["control"], total, strict=True)
        ]
        super().aggregate(arm)
