"""Fixed values: the simplest tuner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_fedhpo.arguments import check_kinds, is_number, number, shown
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import Config, RoundContext, Suggestion, plain


class Fixed(Tuner):
    """Set client and server hyperparameters without tuning them.

    Args:
        client: Values by name, for every client in every round.
        server: Values by name, for the server.

    Example:
        >>> Fixed(client={"epochs": 1, "batch_size": 16}).client_names
        ('epochs', 'batch_size')
    """

    def __init__(self, client: Mapping[str, Any] | None = None, server: Mapping[str, Any] | None = None) -> None:
        check_kinds(Fixed, locals())
        for side, values in (("client", client or {}), ("server", server or {})):
            for name, value in values.items():
                if not isinstance(name, str) or not name:
                    raise TypeError(f"the name of a {side}'s hyperparameter must be a text, got {shown(name)}.")
                if is_number(value):
                    number(f"the {side}'s `{name}`", value)
        self._client = plain(client or {})
        self._server = plain(server or {})
        self.client_names = tuple(self._client)

    def server(self, arm: int, seed: int) -> Config:
        """Return the fixed server values."""
        return self._server

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Suggest the fixed client values to all."""
        return [Suggestion(self._client)] * len(cohort)

    def best(self, arm: Arm) -> Config:
        """Return the fixed client values."""
        return self._client

    def trial(self, seed: int) -> Config:
        """Return the fixed client values."""
        return self._client

    def identity(self) -> dict[str, Any]:
        """Return the values."""
        return {"name": "Fixed", "client": dict(self._client), "server": dict(self._server)}
