"""The costs of a run: all methods are compared by this ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lightning_fedhpo.types import ClientResult


@dataclass
class Ledger:
    """Counts of everything that costs a device or the network something.

    ``rounds`` are rounds of single arms, as the papers count a budget: two arms that live for five rounds spend ten.
    ``evaluations`` are examples that were only scored, ``examples`` those that were trained on (once per epoch).

    >>> ledger = Ledger()
    >>> ledger.rounds += 1
    >>> ledger.as_dict()["rounds"]
    1
    """

    rounds: int = 0
    client_updates: int = 0
    local_steps: int = 0
    examples: int = 0
    evaluations: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def add(self, result: ClientResult, bytes_up: int, bytes_down: int) -> None:
        """Count one job, also one whose result is thrown away: the device has done the work."""
        self.client_updates += 1
        self.local_steps += result.local_steps
        self.examples += result.examples
        self.evaluations += result.evaluations
        self.bytes_up += bytes_up
        self.bytes_down += bytes_down

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, counts: Mapping[str, int]) -> Ledger:
        """Build a ledger from :meth:`as_dict`."""
        return cls(**counts)
