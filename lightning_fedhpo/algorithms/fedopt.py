"""FedOpt: an adaptive optimizer on the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021. Deviation: Adam is ``torch.optim.Adam``, which corrects its
bias; the paper's does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import MOST, check_kinds, number
from lightning_fedhpo.types import Config


class Yogi(Optimizer):
    """Yogi (Zaheer et al., NeurIPS 2018) as FedYogi has it: without bias correction, the second moment from eps^2.

    Example:
        >>> w = torch.zeros(1, requires_grad=True)
        >>> w.grad = torch.ones(1)
        >>> Yogi([w], lr=0.1, betas=(0.0, 0.9), eps=1.0).step()
        >>> round(w.item(), 6)  # v = 1 - 0.1 * sign(1 - 1) = 1, so the step is 0.1 * 1 / (1 + 1)
        -0.05
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99), eps: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # a server has no loss to compute
        """Take one step."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["mean"] = torch.zeros_like(weight)
                    state["second"] = torch.full_like(weight, group["eps"] ** 2)
                mean, second = state["mean"], state["second"]
                mean.lerp_(weight.grad, 1 - beta1)
                square = weight.grad.square()
                second.addcmul_(square, torch.sign(second - square), value=-(1 - beta2))
                weight.addcdiv_(mean, second.sqrt() + group["eps"], value=-group["lr"])


def _adagrad(weights: list[Tensor], lr: float, eps: float) -> Optimizer:
    return torch.optim.Adagrad(weights, lr=lr, initial_accumulator_value=eps**2, eps=eps, foreach=True)


OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (partial(torch.optim.Adam, foreach=True), {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
    "adagrad": (_adagrad, {"tau": 1e-3}),
    "yogi": (Yogi, {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
}
"""The server's optimizers by name, each with the defaults of its hyperparameters beyond ``lr`` and ``decay``."""


class FedOpt(Algorithm):
    """Follow the pseudo-gradient with SGD, Adam, Adagrad or Yogi.

    Args:
        optimizer: ``"sgd"``, ``"adam"``, ``"adagrad"`` or ``"yogi"``.
        lr: The server's learning rate.
        momentum: Momentum of SGD, 0.9 by default.
        beta1: Decay of the first moment, 0.9 by default (Adam, Yogi).
        beta2: Decay of the second moment, 0.99 by default (Adam, Yogi).
        tau: Adaptivity, 0.001 by default: added to the root of the second moment (Adam, Adagrad, Yogi).
        decay: As FedAvg's, as are the arguments after it.

    Example:
        >>> sorted(FedOpt("adagrad", lr=0.1).server)
        ['decay', 'lr', 'tau']
    """

    def __init__(
        self,
        optimizer: Literal["sgd", "adam", "adagrad", "yogi"] = "adam",
        lr: float = 0.1,
        *,
        momentum: float | None = None,
        beta1: float | None = None,
        beta2: float | None = None,
        tau: float | None = None,
        decay: float = 0.0,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        check_kinds(FedOpt, locals())
        self._build, defaults = OPTIMIZERS[optimizer]
        settings = {"momentum": momentum, "beta1": beta1, "beta2": beta2, "tau": tau}
        given = {name: value for name, value in settings.items() if value is not None}
        foreign = [name for name in given if name not in defaults]
        if foreign:
            raise ValueError(
                f"the server optimizer {optimizer!r} has no {', '.join(foreign)}: it takes lr, decay and "
                f"{', '.join(defaults)}."
            )
        super().__init__(server={"lr": lr, **defaults, **given, "decay": decay}, weighting=weighting, local=local)
        self.optimizer = optimizer

    def server_optimizer(self, weights: list[Tensor], config: Config) -> Optimizer:
        """Return the named optimizer."""
        return self._build(weights, lr=config["lr"], **self.server_options(config))

    def server_options(self, config: Config) -> dict[str, Any]:
        """Return the options under the optimizer's own names."""
        options: dict[str, Any] = {}
        if "momentum" in config:
            options["momentum"] = config["momentum"]
        if "beta1" in config:
            options["betas"] = float(config["beta1"]), float(config["beta2"])  # torch takes no 0 for 0.0
        if "tau" in config:
            options["eps"] = config["tau"]
        return options

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse impossible betas and an impossible ``tau``, too."""
        super().check_values(side, values)
        number("the server's `lr`", values.get("lr", 1.0), 0, MOST)
        for name in ("beta1", "beta2"):
            number(name, values.get(name, 0.0), low=0, below=1)
        number("tau", values.get("tau", 1.0), above=0, high=MOST, why="it keeps the step finite")

    def identity(self) -> dict[str, Any]:
        """Return the settings, and the optimizer's name."""
        return {**super().identity(), "optimizer": self.optimizer}

    def __repr__(self) -> str:
        return super().__repr__().replace("(", f"({self.optimizer!r}, ", 1)
