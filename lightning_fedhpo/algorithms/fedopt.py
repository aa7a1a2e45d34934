"""FedOpt: an adaptive optimizer on the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021. Deviations: Adam is ``torch.optim.Adam`` and so corrects its
bias in the first rounds, which the paper leaves out; Adagrad starts from ``tau**2``, as the paper's does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import check_kinds, number
from lightning_fedhpo.types import Config


class Yogi(Optimizer):
    """Yogi (Zaheer et al., NeurIPS 2018), in the form FedYogi uses: no bias correction, second moment from tau^2.

    Example:
        >>> w = torch.zeros(1, requires_grad=True)
        >>> w.grad = torch.ones(1)
        >>> Yogi([w], lr=0.1, betas=(0.0, 0.9), tau=1.0).step()
        >>> round(w.item(), 6)  # v = 1 - 0.1 * sign(1 - 1) = 1, so the step is 0.1 * 1 / (1 + 1)
        -0.05
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
        tau: float = 1e-3,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "tau": tau})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # one form
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["mean"] = torch.zeros_like(weight)
                    state["second"] = torch.full_like(weight, group["tau"] ** 2)
                mean, second = state["mean"], state["second"]
                mean.lerp_(weight.grad, 1 - beta1)
                square = weight.grad.square()
                second.addcmul_(square, torch.sign(second - square), value=-(1 - beta2))
                weight.addcdiv_(mean, second.sqrt() + group["tau"], value=-group["lr"])
        return loss


def _momentum(config: Config) -> dict[str, Any]:
    return {"momentum": config["momentum"]}


def _betas_and_eps(config: Config) -> dict[str, Any]:
    return {"betas": (config["beta1"], config["beta2"]), "eps": config["tau"]}


def _betas_and_tau(config: Config) -> dict[str, Any]:
    return {"betas": (config["beta1"], config["beta2"]), "tau": config["tau"]}


def _eps(config: Config) -> dict[str, Any]:
    return {"eps": config["tau"]}


def _adagrad(weights: list[Tensor], lr: float, eps: float) -> Optimizer:
    return torch.optim.Adagrad(weights, lr=lr, initial_accumulator_value=eps**2, eps=eps, foreach=True)


OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], Callable[[Config], dict[str, Any]], tuple[str, ...]]] = {
    "sgd": (torch.optim.SGD, _momentum, ("momentum",)),
    "adam": (partial(torch.optim.Adam, foreach=True), _betas_and_eps, ("beta1", "beta2", "tau")),
    "adagrad": (_adagrad, _eps, ("tau",)),
    "yogi": (Yogi, _betas_and_tau, ("beta1", "beta2", "tau")),
}
"""The server's optimizers by name: the class, its options by configuration, and its hyperparameters beyond ``lr`` and
``decay``."""


class FedOpt(Algorithm):
    """Follow the pseudo-gradient with SGD, Adam, Adagrad or Yogi.

    Args:
        optimizer: ``"sgd"``, ``"adam"``, ``"adagrad"`` or ``"yogi"``.
        lr: The server's learning rate.
        momentum: Momentum of SGD.
        beta1: Decay of the first moment (Adam, Yogi).
        beta2: Decay of the second moment (Adam, Yogi).
        tau: Adaptivity: added to the root of the second moment (Adam, Adagrad, Yogi).
        decay: The server's learning rate in round t is ``lr * (1 - decay)**t``.
        weighting: ``"examples"`` or ``"uniform"``.
        local: Patterns of what never leaves the client.

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
        self._build, self._options, names = OPTIMIZERS[optimizer]
        given = {"momentum": momentum, "beta1": beta1, "beta2": beta2, "tau": tau}
        foreign = [name for name, value in given.items() if value is not None and name not in names]
        if foreign:
            raise ValueError(
                f"the server optimizer {optimizer!r} has no {', '.join(foreign)}: it takes lr, decay and "
                f"{', '.join(names)}."
            )
        defaults = {"momentum": 0.9, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}
        own = {name: defaults[name] if (value := given[name]) is None else value for name in names}
        super().__init__(server={"lr": lr, **own, "decay": decay}, weighting=weighting, local=local)
        self.optimizer = optimizer

    def server_optimizer(self, weights: list[Tensor], config: Config) -> Optimizer:
        """Return the named optimizer."""
        return self._build(weights, lr=config["lr"], **self._options(config))

    def server_options(self, config: Config) -> dict[str, Any]:
        """Return the options as the named optimizer calls them."""
        return self._options(config)

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse betas and an adaptivity that cannot be, too."""
        super().check_values(side, values)
        for name in ("beta1", "beta2"):
            number(name, values.get(name, 0.0), low=0, below=1)
        number("tau", values.get("tau", 1.0), above=0, why="it keeps the step finite")

    def identity(self) -> dict[str, Any]:
        """Return the method, how it is set, and which optimizer it uses."""
        return {**super().identity(), "optimizer": self.optimizer}

    def __repr__(self) -> str:
        return super().__repr__().replace("(", f"({self.optimizer!r}, ", 1)
