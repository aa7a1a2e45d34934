"""The costs of a run: all methods are compared by this ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_fedhpo.types import ClientResult

_OPTIONAL = ("seconds", "epsilon", "epsilon_per_release", "delta")


@dataclass
class Ledger:
    """Counts of everything that costs a device or the network something.

    ``rounds`` are rounds of single arms, as the papers count a budget: two arms that live for five rounds spend ten.
    ``evaluations`` are examples that were only scored, ``examples`` those that were trained on (once per epoch).
    The bytes of a model come from ``Arm.nbytes``, by :meth:`.Records.record_round`. ``seconds`` are those of simulated
    devices, round after round. ``epsilon`` is the privacy in all of the client whose scores were released most often,
    ``epsilon_per_release`` that of one of them, both at the same ``delta``. What a run does not have is not there.

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
    seconds: float = 0.0
    epsilon: float = 0.0
    epsilon_per_release: float = 0.0
    delta: float = 0.0

    def add(self, results: Sequence[ClientResult], size: int, models_received: int = 0, broadcast: int = 0) -> None:
        """Count an arm's round, also results that are thrown away: the devices have done the work.

        Args:
            results: Those of all jobs.
            size: The bytes of the arm's model.
            models_received: How many models each client gets, and scores, besides.
            broadcast: The bytes that each client gets along with the model.
        """
        self.rounds += 1
        self.client_updates += len(results)
        self.local_steps += sum([result.local_steps for result in results])
        self.examples += sum([result.examples for result in results])
        self.evaluations += sum([result.evaluations + models_received * result.val_examples for result in results])
        self.bytes_up += size * sum([not (result.error or result.job.lost) for result in results])
        self.bytes_down += (size * (1 + models_received) + broadcast) * len(results)

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {name: count for name, count in vars(self).items() if name not in _OPTIONAL or count}
