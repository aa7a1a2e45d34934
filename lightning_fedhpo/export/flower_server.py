"""The server of a Flower app: its optimizer, which follows the clients' mean."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any

SERVER_STEP = Template('''\
"""What the server does with the clients' mean: a step of its optimizer. Flower is not needed."""

from typing import Any

import torch
from lightning.pytorch import LightningModule

$optimizer_class
class ServerStep:
    """Follows the pseudo-gradient w - mean(w_i) with an optimizer; its rate in round t is lr (1 - decay)^t."""

    def __init__(self, module: LightningModule, values: dict[str, Any]) -> None:
        self.lr, self.decay = values["lr"], values["decay"]
        trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        self.weights = {name: weight.detach().clone() for name, weight in trained.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in module.state_dict().items()}
        weights = list(self.weights.values())
        self.optimizer = $optimizer

    def __call__(self, mean: dict[str, torch.Tensor], server_round: int) -> dict[str, torch.Tensor]:
        """Return the model after a round, counted from 1. What has no gradient, such as statistics, is the mean."""
        for name, weight in self.weights.items():
            weight.grad = weight - mean[name]
        self.optimizer.param_groups[0]["lr"] = self.lr * (1 - self.decay) ** (server_round - 1)
        self.optimizer.step()
        return {name: self.weights.get(name, tensor).to(self.dtypes[name]) for name, tensor in mean.items()}
''')

ADAPTIVE = Template('''
class Adaptive(torch.optim.Optimizer):
    """$name as Reddi et al. have it: the second moment begins at tau^2, and no bias is corrected."""

    def __init__(self, weights: list[torch.Tensor], lr: float, beta1: float, beta2: float, tau: float) -> None:
        super().__init__(weights, {"lr": lr, "beta1": beta1, "beta2": beta2, "tau": tau})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if not self.state[weight]:
                    second = torch.full_like(weight, group["tau"] ** 2)
                    self.state[weight] = {"mean": torch.zeros_like(weight), "second": second}
                mean, second = self.state[weight].values()
                mean.lerp_(weight.grad, 1 - group["beta1"])
                square = weight.grad**2
                $rule
                weight.sub_(group["lr"] * mean / (second.sqrt() + group["tau"]))

''')

RULES = {
    "adam": 'second.lerp_(square, 1 - group["beta2"])',
    "yogi": 'second.sub_((1 - group["beta2"]) * (second - square).sign() * square)',
}

OPTIMIZERS = {
    "sgd": 'torch.optim.SGD(weights, lr=self.lr, momentum=values["momentum"])',
    "adagrad": (
        'torch.optim.Adagrad(weights, self.lr, initial_accumulator_value=values["tau"] ** 2, eps=values["tau"])'
    ),
    "corrected adam": (
        'torch.optim.Adam(weights, self.lr, betas=(values["beta1"], values["beta2"]), eps=values["tau"])'
    ),
}
ADAPTED = 'Adaptive(weights, self.lr, values["beta1"], values["beta2"], values["tau"])'


def server_step(algorithm: Mapping[str, Any]) -> str:
    """Return ``server_step.py``, with the optimizer of a run's section ``algorithm``."""
    kind = "sgd"
    if str(algorithm["_target_"]).endswith(".FedOpt"):
        kind = str(algorithm.get("optimizer", "adam"))
    if kind == "adam" and algorithm.get("bias_correction"):
        kind = "corrected adam"
    own = ADAPTIVE.substitute(name=kind.title(), rule=RULES[kind]) if kind in RULES else ""
    return SERVER_STEP.substitute(optimizer_class=own, optimizer=OPTIMIZERS.get(kind, ADAPTED))
