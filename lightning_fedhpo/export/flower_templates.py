"""The files of a Flower app, with ``$names`` for what a run decides."""

from __future__ import annotations

from string import Template

PYPROJECT = Template("""\
# A Flower app that trains with what a run of lightning-fedhpo has found. To simulate it, in this folder:
#   $command
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "1.0.0"
description = "Federated training with tuned hyperparameters"
license = "Apache-2.0"
# Flower installs these anew for every run, into an environment of its own. None: it takes what is installed where it
# runs. On devices that is $needs.
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["tuned"]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "tuned.server_app:app"
clientapp = "tuned.client_app:app"

# All of these can be changed for one run: flwr run . --run-config "rounds=10 client.lr=0.1"
[tool.flwr.app.config]
rounds = $rounds
cohort = $cohort  # clients that train in a round
save = $save  # where the model goes: make_model().load_state_dict(torch.load(...))
seed = $seed  # of the initial weights, and of the order of a simulated client's examples

# What was found, by the names of the search space.
[tool.flwr.app.config.client]
$client

[tool.flwr.app.config.server]
$server
""")

INIT = '"""Federated training with tuned hyperparameters."""\n'

DATA_HEAD = '''\
"""How a client comes by its examples: THE FILE TO CHANGE before the app goes to devices."""

from typing import Any

from flwr.app import Context
'''

SIMULATED = Template('''\
from hydra.utils import instantiate
from lightning_fedhpo.export import ClientBatches

DATA = {
$data}
"""The data of the run, by which clients are simulated."""
_federation: list[Any] = []  # read once by every process


def load(context: Context, split: str, batch_size: int | None = None, server_round: int = 1) -> tuple[Any, int]:
    """Return the batches of a client, and how many examples they have.

    A device has no partition-id: return a DataLoader of what it has, shuffled for training, in batches of batch_size.
    """
    if "partition-id" not in context.node_config:
        raise NotImplementedError("say in tuned/data.py how a device loads its examples")
    if not _federation:
        _federation.append(instantiate(DATA, _convert_="all"))
    client, seed = int(context.node_config["partition-id"]), int(context.run_config["seed"])
    batches = ClientBatches(_federation[0], client, split, batch_size, seed, server_round - 1)
    return batches, batches.examples
''')

UNKNOWN = '''\


def load(context: Context, split: str, batch_size: int | None = None, server_round: int = 1) -> tuple[Any, int]:
    """Return the batches of a client, and how many examples they have.

    The run was made by a script, which knows the data. Return a DataLoader of a client's examples ("train", shuffled,
    in batches of batch_size; or "val"). In a simulation clients have numbers. With a FederatedData
    that a function `clients` of yours makes:

        batches = ClientBatches(clients(), int(context.node_config["partition-id"]), split, batch_size)
        return batches, batches.examples  # from lightning_fedhpo.export import ClientBatches
    """
    raise NotImplementedError("say in tuned/data.py how a client loads its examples")
'''

CLIENT_APP = Template('''\
"""The client: it trains the model that it receives, and sends it back."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tuned.data import load
from tuned.task import make_model, train, validate

app = ClientApp()


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train on this client's examples."""
    values = {name[len("client.") :]: one for name, one in context.run_config.items() if name.startswith("client.")}
    server_round = int(message.content["config"]["server-round"])
    module = make_model()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batches, examples = load(context, "train", int(values["batch_size"]), server_round)
    metrics = train(module, batches, values, server_round)
    told = MetricRecord({**metrics, "num-examples": $weight})
    return Message(RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": told}), reply_to=message)


@app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    """Validate the global model on this client's examples."""
    module = make_model()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batches, examples = load(context, "val")
    if not examples:
        raise ValueError("this client has no validation examples")  # Flower goes on with the others
    metrics = MetricRecord({**validate(module, batches), "num-examples": examples})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
''')

SERVER_APP = '''\
"""The server: it draws clients, averages what they send, and takes a step of the server's optimizer."""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from lightning.pytorch import seed_everything

from tuned.server_step import ServerStep
from tuned.task import make_model

app = ServerApp()
FEW = 1e-9  # of all clients: so it is always `cohort` that are drawn


class Tuned(FedAvg):
    """FedAvg with the server's optimizer that was found."""

    def __init__(self, step: ServerStep, cohort: int) -> None:
        super().__init__(FEW, FEW, cohort, cohort, min_available_nodes=cohort)
        self.step = step

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the models, and step."""
        mean, metrics = super().aggregate_train(server_round, replies)
        if mean is None:  # no client has answered
            return None, metrics
        return ArrayRecord(self.step(mean.to_torch_state_dict(), server_round)), metrics


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for all rounds, and save the model."""
    config = context.run_config
    values = {name[len("server.") :]: float(value) for name, value in config.items() if name.startswith("server.")}
    seed_everything(int(config["seed"]), workers=True, verbose=False)
    module = make_model()
    strategy = Tuned(ServerStep(module, values), int(config["cohort"]))
    result = strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=int(config["rounds"]))
    torch.save(result.arrays.to_torch_state_dict(), str(config["save"]))
'''
