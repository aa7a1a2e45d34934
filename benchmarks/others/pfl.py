"""The workloads on pfl's ``SimulatedBackend``: prints the rate as one line of JSON.

    .venv-pfl/bin/python -m benchmarks.others.pfl mlp

pfl trains a client on its batches in the order of the data and keeps them cut; the rest is the same work.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import DatasetSplit
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.bridge import FrameworkBridgeFactory
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workloads import COHORT, LR, MOMENTUM, WORKLOADS, Workload


class Net(nn.Module):
    """A network with the two functions that pfl asks for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the training loss."""
        self.net.train()
        return functional.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Return the validation loss."""
        self.net.eval()
        return {"loss": Weighted(functional.cross_entropy(self.net(x), y, reduction="sum").item(), len(y))}


class TrainThenValidate(FederatedAveraging):  # type: ignore[misc]  # pfl is untyped here
    """FedAvg whose clients train on one part of their examples and validate on the other."""

    def train_one_user(self, initial: Any, model: Any, user: Any, context: Any) -> tuple[Any, Metrics]:
        """Train, validate, return the difference."""
        FrameworkBridgeFactory.sgd_bridge().do_sgd(model, user.train, context.model_train_params)
        return model.get_model_difference(initial), model.evaluate(user.val)


class User(DatasetSplit):  # type: ignore[misc]  # pfl is untyped here
    """A client's two parts; what it weighs is its training examples."""

    def __init__(self, train: PyTorchTensorDataset, val: PyTorchTensorDataset) -> None:
        super().__init__(train, val)
        self.train, self.val = train, val

    def iter(self, batch_size: int | None) -> Any:
        """Iterate over what is validated on: pfl evaluates in its first round, whatever it is asked."""
        return self.val.iter(batch_size)


class Marks(TrainingProcessCallback):  # type: ignore[misc]  # pfl is untyped here
    """Remembers when every round ended."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> tuple[bool, Metrics]:
        """Note an end."""
        self.marks.append(time.perf_counter())
        return False, Metrics()


def rate(workload: Workload, rounds: int) -> float:
    """Return client updates per second, without the first round."""
    np.random.seed(0)
    x, y, train, val = workload.clients()
    users = [
        User(PyTorchTensorDataset((x[own], y[own])), PyTorchTensorDataset((x[rest], y[rest])))
        for own, rest in zip(train, val, strict=True)
    ]
    data = FederatedDataset(users.__getitem__, get_user_sampler("random", list(range(len(users)))))
    net = Net(workload.seeded())
    optimizer = partial(torch.optim.SGD, momentum=MOMENTUM, fused=True)
    model = PyTorchModel(net, optimizer, torch.optim.SGD(net.parameters(), lr=1.0))
    marks = Marks()
    TrainThenValidate().run(
        algorithm_params=NNAlgorithmParams(rounds + 1, rounds + 2, COHORT, None),
        backend=SimulatedBackend(data, data, [WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(workload.batch_size, workload.epochs, LR),
        model_eval_params=NNEvalHyperParams(None),
        callbacks=[marks],
        send_metrics_to_platform=False,
    )
    return rounds * COHORT / (marks.marks[-1] - marks.marks[0])


def main() -> None:
    """Measure one workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--workers", type=int, default=1, choices=(1,))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[arguments.workload]
    found = rate(workload, arguments.rounds or workload.rounds)
    print(json.dumps({"rate": found, "version": metadata.version("pfl"), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
