"""FedOpt: an adaptive optimizer on the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, algorithm 2: the second moment begins at tau^2, and no bias
is corrected. ``bias_correction=True`` takes ``torch.optim.Adam``, which begins at zero and corrects it.
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


class Adaptive(Optimizer):
    """Adam or Yogi (Zaheer et al., NeurIPS 2018) as FedAdam and FedYogi have them.

    Args:
        params: The weights.
        lr: The step.
        betas: Decays of the first and of the second moment.
        eps: The second moment begins at its square; it is added to the root.
        sign: Yogi's rule: only the sign of its distance from the gradient's square moves the second moment.

    Example:
        >>> w = torch.zeros(1, requires_grad=True)
        >>> w.grad = torch.ones(1)
        >>> Adaptive([w], lr=0.1, betas=(0.0, 0.9), eps=2.0).step()
        >>> round(w.item(), 6)  # v = 0.9 * 4 + 0.1 * 1, so the step is 0.1 / (3.7 ** 0.5 + 2)
        -0.025487
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, *, sign: bool = False) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})
        self._sign = sign

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # a server has no loss to compute
        """Take one step."""
        for group in self.param_groups:
            (beta1, beta2), weights = group["betas"], group["params"]
            gradients = [weight.grad for weight in weights]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight]["mean"] = torch.zeros_like(weight)
                    self.state[weight]["second"] = torch.full_like(weight, group["eps"] ** 2)
            means, seconds = ([self.state[weight][name] for weight in weights] for name in ("mean", "second"))
            torch._foreach_lerp_(means, gradients, 1 - beta1)
            squares = torch._foreach_mul(gradients, gradients)
            if self._sign:
                signs = torch._foreach_sign(torch._foreach_sub(seconds, squares))
                torch._foreach_addcmul_(seconds, squares, signs, value=-(1 - beta2))
            else:
                torch._foreach_lerp_(seconds, squares, 1 - beta2)
            roots = torch._foreach_sqrt(seconds)
            torch._foreach_add_(roots, group["eps"])
            torch._foreach_addcdiv_(weights, means, roots, value=-group["lr"])


def _adagrad(weights: list[Tensor], lr: float, eps: float) -> Optimizer:
    return torch.optim.Adagrad(weights, lr=lr, initial_accumulator_value=eps**2, eps=eps, foreach=True)


OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (Adaptive, {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
    "adagrad": (_adagrad, {"tau": 1e-3}),
    "yogi": (partial(Adaptive, sign=True), {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
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
        decay: As FedAvg's, as are `weighting` and `local`.
        bias_correction: For Adam: ``torch.optim.Adam``, whose moments begin at zero and are corrected for it.

    Example:
        >>> sorted(FedOpt("adagrad", lr=0.1).server)
        ['decay', 'lr', 'tau']
    """

    settings = ("optimizer", "bias_correction")

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
        bias_correction: bool = False,
    ) -> None:
        check_kinds(FedOpt, locals())
        self._build, defaults = OPTIMIZERS[optimizer]
        if bias_correction:
            if optimizer != "adam":
                raise ValueError(f"`bias_correction` is Adam's, got the server optimizer {optimizer!r}: leave it out.")
            self._build = partial(torch.optim.Adam, foreach=True)
        settings = {"momentum": momentum, "beta1": beta1, "beta2": beta2, "tau": tau}
        given = {name: value for name, value in settings.items() if value is not None}
        foreign = [name for name in given if name not in defaults]
        if foreign:
            raise ValueError(
                f"the server optimizer {optimizer!r} has no {', '.join(foreign)}: it takes lr, decay and "
                f"{', '.join(defaults)}."
            )
        super().__init__(server={"lr": lr, **defaults, **given, "decay": decay}, weighting=weighting, local=local)
        self.optimizer, self.bias_correction = optimizer, bias_correction

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
        for name in ("beta1", "beta2"):
            number(name, values.get(name, 0.0), low=0, below=1)
        number("tau", values.get("tau", 1.0), above=0, why="it keeps the step finite")

    def __repr__(self) -> str:
        return super().__repr__().replace("(", f"({self.optimizer!r}, ", 1)
