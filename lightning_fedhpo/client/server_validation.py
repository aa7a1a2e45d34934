"""The server's own validation set: every arm's global model is scored on it, after aggregation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader

from lightning_fedhpo import seeding
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.client.step_log import StepLog
from lightning_fedhpo.client.workbench import Workbench
from lightning_fedhpo.data.columns import kind_of
from lightning_fedhpo.data.datamodule import source_of
from lightning_fedhpo.data.examples import Examples
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.fingerprint import fingerprint_of
from lightning_fedhpo.data.splits import Split, one_client
from lightning_fedhpo.types import Config


def server_split(server_data: Any, federation: FederatedData) -> Split | None:
    """Return the server's examples: those given to the loop, else those that the federation has held out."""
    if server_data is None:
        return federation.server
    if isinstance(server_data, list | tuple) and any(isinstance(one, DataLoader) for one in server_data):
        raise TypeError("`server_data` must be one data set or one DataLoader, got several DataLoaders.")
    loads = isinstance(server_data, DataLoader)
    split = one_client(source_of(server_data, "`server_data`")) if loads else federation.as_server(server_data)
    if not len(split.examples(0)):
        raise ValueError("`server_data` must have examples to score arms on, got none.")
    return split


class ServerValidation:
    """Runs the module's ``validation_step`` on examples that belong to no single client."""

    def __init__(self, split: Split, seed: int, bench: Callable[[], Workbench]) -> None:
        self.examples = split.examples(0)
        self.batch_size = split.source.batch_size
        self.bench = bench
        self.fingerprint = fingerprint_of(split)
        self._seed = seed

    @property
    def module(self) -> LightningModule:
        """The user's module."""
        return self.bench().local.module

    def score(self, arm: Arm, config: Config) -> dict[str, float]:
        """Return the metrics of an arm's global model."""
        return self.run(arm.weights, arm.buffers, None, config)

    def check(self, arm: Arm, clients: Examples) -> dict[str, float]:
        """Return the metrics of an arm's global model, or raise if the examples are not like clients'."""
        one = torch.zeros(1, dtype=torch.int64)
        theirs, ours = kind_of(clients.take(one)), kind_of(self.examples.take(one))
        rule = f"a batch of one example is {theirs} for clients, and {ours} for the server: convert the server's alike"
        try:
            metrics = self.score(arm, {})
        except MisconfigurationException:
            raise  # the module's fault, whatever the examples
        except Exception as error:
            what = f"`validation_step` fails on the server's examples: {type(error).__name__}: {error}"
            raise ValueError(f"{what.removesuffix('.')}; {rule}, labels too.") from error
        if re.sub(r"x\d+", "x_", theirs) != re.sub(r"x\d+", "x_", ours):  # images of another size may do
            raise ValueError(f"the server's examples must be of the clients' kind; {rule}.")
        return metrics

    def run(
        self, weights: Sequence[Tensor], buffers: Sequence[Tensor], personal: Sequence[Tensor] | None, config: Config
    ) -> dict[str, float]:
        """Return the metrics of given weights."""
        with self._begun() as bench:
            bench.state.load(weights, buffers, personal)
            bench.binding.apply(config)
            return bench.evaluate(self.examples, self.batch_size)

    def differentiate(self, log: StepLog) -> dict[str, float]:
        """Run the module's ``validation_step`` with gradients, whose values ``log`` takes."""
        with self._begun() as bench:
            bench.binding.restore()  # and not the last job's values, which the validation may read
            limit = bench.limits.val
            return bench.local.evaluate(self.examples, limit=limit, log=log, batch_size=self.batch_size, gradients=True)

    @contextmanager
    def _begun(self) -> Iterator[Workbench]:
        bench = self.bench()
        bench.state.begin()
        seeding.seed_user_code(seeding.key(self._seed, seeding.SERVER))
        try:
            yield bench
        finally:
            bench.state.end()
