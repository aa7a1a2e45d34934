"""Replay: train with the schedule of hyperparameters that another run has found.

Population training finds a schedule instead of one configuration: what an arm and its ancestors used in each round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from os import PathLike
from typing import Any, Literal

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.trajectory import checked, read_trajectory
from lightning_fedhpo.tuners.base import RunPlan, Tuner
from lightning_fedhpo.types import Config, RoundContext, Suggestion


class Replay(Tuner):
    """Set client and server hyperparameters to those of another run's best arm, round by round.

    A run that is longer than the trajectory goes on with its last values.

    Args:
        trajectory: A run's ``trajectory.json``, or its ``fed.result.trajectory``.

    Example:
        >>> rounds = [{"server": {"lr": 1.0}, "client": {"lr": 0.1}}, {"server": {"lr": 0.5}, "client": {"lr": 0.05}}]
        >>> Replay(rounds).client_names
        ('lr',)
    """

    def __init__(self, trajectory: str | PathLike[str] | Sequence[Mapping[str, Any]]) -> None:
        check_kinds(Replay, locals())
        if isinstance(trajectory, str | PathLike):
            self._rows = read_trajectory(trajectory)
        else:
            self._rows = checked(trajectory, "what was given")
        self._of_clients: list[dict[int, Config]] = [row.get("clients", {}) for row in self._rows]
        own = {name for config in self._of_clients[0].values() for name in config}
        self.server_names = tuple(self._rows[0]["server"])
        self.client_names = tuple(dict.fromkeys([*self._rows[0]["client"], *sorted(own)]))

    def plan(self, plan: RunPlan) -> None:
        """Refuse a federation of other clients than the trajectory's; warn where the run is longer."""
        rounds, clients = plan.rounds, set(self._of_clients[0])
        if clients and clients != set(range(plan.clients)):
            raise ValueError(
                f"the trajectory has configurations for {len(clients)} clients, numbers {min(clients)} to "
                f"{max(clients)}, and this federation has {plan.clients}, from 0: replay it on the federation of its "
                "run, or take `clients` out of its rounds."
            )
        if rounds is not None and rounds > len(self._rows):
            rank_zero_warn(
                f"the trajectory has {len(self._rows)} rounds and the run {rounds}: its last values are used from "
                f"round {len(self._rows)} on."
            )

    def server(self, arm: int, seed: int) -> Config:
        """Return the first round's server values."""
        return dict(self._rows[0]["server"])

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Set the round's server values, and suggest its client values."""
        arm.server.update(self._rows[self._place(arm)]["server"])
        return super().suggest(arm, cohort, context)

    def best(self, arm: Arm) -> Config:
        """Return the client values of the arm's next round."""
        return dict(self._rows[self._place(arm)]["client"])

    def clients(self, arm: Arm) -> Sequence[Config]:
        """Return each client's own values, if the trajectory has them."""
        own = self._of_clients[self._place(arm)]
        return [own[client] for client in range(len(own))]

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return a client's values of the arm's next round."""
        return {**self.best(arm), **self._of_clients[self._place(arm)].get(client, {})}

    def trial(self, seed: int) -> Config:
        """Return the first round's values."""
        return {**self._rows[0]["client"], **self._of_clients[0].get(0, {})}

    def edges(self, name: str, part: Literal["client", "server"] = "client") -> Sequence[Any]:
        """Return every value of a hyperparameter in the trajectory."""
        values = [row[part][name] for row in self._rows if name in row[part]]
        if part == "client":
            values += [own[name] for clients in self._of_clients for own in clients.values() if name in own]
        return list(dict.fromkeys(values))

    def identity(self) -> dict[str, Any]:
        """Return a hash of the trajectory."""
        text = json.dumps(self._rows, sort_keys=True)
        return {"name": "Replay", "trajectory": blake2b(text.encode(), digest_size=8).hexdigest()}

    def _place(self, arm: Arm) -> int:
        return min(arm.rounds, len(self._rows) - 1)
