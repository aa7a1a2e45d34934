"""The server's own validation set: every arm's global model is scored on it, after aggregation."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from lightning_fedhpo import seeding
from lightning_fedhpo.arm import Arm
from lightning_fedhpo.data.datamodule import source_of
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.fingerprint import fingerprint_of
from lightning_fedhpo.data.splits import Split, whole
from lightning_fedhpo.executors.sequential import SequentialExecutor
from lightning_fedhpo.types import Config


def server_split(server_data: Any, federation: FederatedData) -> Split | None:
    """Return the server's examples: those given to the loop, else those that the federation has held out."""
    if server_data is None:
        return federation.server
    if isinstance(server_data, DataLoader):
        return whole(source_of(server_data, "`server_data`"))
    return federation.as_server(server_data)


class ServerValidation:
    """Runs the module's ``validation_step`` on the server's examples.

    Args:
        split: The server's examples, as those of client 0.
        seed: The run's.
    """

    def __init__(self, split: Split, seed: int) -> None:
        self.examples = split.examples(0)
        self.batch_size = split.source.batch_size
        self._seed = seed
        self.fingerprint = fingerprint_of(split)

    def score(self, executor: SequentialExecutor, arm: Arm, config: Config) -> dict[str, float]:
        """Return what the module logs for an arm's global model.

        Args:
            executor: Has the module, whose tensors are set to the arm's.
            arm: The arm.
            config: The clients' hyperparameters, for those that the module's own validation reads.
        """
        executor.state.begin(arm.rounds, arm.index, -1)
        executor.state.load(arm.weights, arm.buffers, None)
        executor.binding.apply(config)
        seeding.seed_user_code(seeding.key(self._seed, seeding.EVALUATION, arm.rounds, arm.index, -1))
        try:
            return executor.evaluate(self.examples, self.batch_size)
        finally:
            executor.state.end()
