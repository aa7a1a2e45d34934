"""FedHyper: learning rates follow the inner products of successive updates.

Wang, Wang, Li: "FedHyper: A Universal and Robust Learning Rate Scheduler for Federated Learning with Hypergradient
Descent", ICLR 2024 (arXiv 2310.03156). Where an update goes the way of the one before, a rate was too small. With
``D_t`` for the mean of ``w_t - w_i``, three factors begin at 1:

- global, of the server's learning rate: ``alpha_t = clip(alpha_{t-1} + s <D_t, D_{t-1}>, 0.2, 5)``; the rate of the
  step along ``D_t``.
- server, of the clients' learning rate in the next round: ``beta_t = clip(beta_{t-1} + s <D_t, D_{t-1}>, 0.1, 10)``.
- client, of a client's learning rate inside its round. With ``u_k`` for its step k, ``U`` for what the mean of the
  clients has moved in the round before, and M for that round's participants:
  ``b_{k+1} = clip(b_k min(1.1, 1 + s (<u_k, u_{k-1}> + 0.1 <u_k, U> / M)), 0.1, 10)``.

The formulas are those of the authors' program, with ``s = 1``; of the paper itself only summaries were at hand, by
which its equation 20 adds inner products of gradients to the client's rate. Deviations from the program: ``s`` is an
argument, since inner products depend on the scale of the updates; ``beta`` is clipped itself, not the rate that comes
of it; the first step of a client's later epochs is like any other. A client's product begins with its second step;
the program takes ``U`` for the step before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arguments import check_kinds, number
from lightning_fedhpo.types import ClientResult, Config

if TYPE_CHECKING:
    from lightning_fedhpo.arms.arm import Arm
    from lightning_fedhpo.client.local_run import LocalRun
    from lightning_fedhpo.client.training import Step

RATES = ("global", "server", "client")
UPDATE, FACTORS, SENDERS = "last update", "factors", "senders"
MOST, OF_UPDATE = 1.1, 0.1
"""By how much a client's factor grows in a step at most, and how much the last round's update counts in it."""


def clipped(value: float, bounds: Sequence[float]) -> float:
    """Return the nearest value within bounds.

    >>> clipped(1.5, (0.2, 5.0)), clipped(-3.0, (0.2, 5.0))
    (1.5, 0.2)
    """
    return min(max(value, bounds[0]), bounds[1])


def inner_product(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Return the inner product of two lists of tensors, as far as the shorter one goes."""
    return sum(float((a * b).sum()) for a, b in zip(one, other, strict=False))


class FedHyper(Algorithm):
    """FedAvg with learning rates that hypergradients change, on the server, on clients, or on both.

    With ``"client"`` the last round's update is sent along with the model. With ``"server"`` or ``"client"`` jobs run
    one after another.

    Args:
        rates: Which rates change, some of ``"global"``, ``"server"`` and ``"client"``.
        scale: s, which multiplies the inner products: ``scale`` of the server's, ``hyper_scale`` of clients'.
        bounds: Of the global factor.
        client_bounds: Of the clients' factors. The other arguments are FedAvg's.

    Example:
        >>> FedHyper(["global", "client"], scale=0.5)
        FedHyper(hyper_scale=0.5, lr=1.0, momentum=0.0, decay=0.0, scale=0.5)
    """

    def __init__(
        self,
        rates: str | Sequence[str] = ("global",),
        scale: float = 1.0,
        lr: float = 1.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        bounds: Sequence[float] = (0.2, 5.0),
        client_bounds: Sequence[float] = (0.1, 10.0),
        *,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        check_kinds(FedHyper, locals())
        self.rates = (rates,) if isinstance(rates, str) else tuple(rates)
        if not self.rates or set(self.rates) - set(RATES):
            raise ValueError(f"`rates` must be some of {', '.join(map(repr, RATES))}, got {list(self.rates)}.")
        self.bounds, self.client_bounds = _bounds("bounds", bounds), _bounds("client_bounds", client_bounds)
        self.broadcasts = (UPDATE,) if "client" in self.rates else ()
        on_server = {"scale": scale} if {"global", "server"} & set(self.rates) else {}
        super().__init__(
            client={"hyper_scale": scale} if "client" in self.rates else {},
            server={"lr": lr, "momentum": momentum, "decay": decay, **on_server},
            weighting=weighting,
            local=local,
        )

    @property
    def overrides_local_training(self) -> bool:
        """Whether clients' learning rates change."""
        return bool({"server", "client"} & set(self.rates))

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return the last update, zero at first; the global and the clients' factor; how many have sent a model."""
        factors = torch.ones(2, dtype=torch.float32, device=weights[0].device)
        zeros = [torch.zeros_like(weight, requires_grad=False) for weight in weights]
        return {UPDATE: zeros, FACTORS: [factors], SENDERS: [torch.zeros_like(factors[0])]}

    def train_locally(self, run: LocalRun) -> None:
        """Train with the learning rates times the factors."""
        steps = _ScaledSteps(run, self.rates, self.client_bounds)
        run.train(around=steps.around)

    def receive(self, arm: Arm, result: ClientResult) -> None:
        """Add the client's model, and count it."""
        super().receive(arm, result)
        arm.add_state(SENDERS, [torch.ones_like(arm.server_state[SENDERS][0])])

    def server_lr(self, arm: Arm, gradient: Sequence[Tensor]) -> float:
        """Return the rate times the global factor."""
        factor = float(arm.server_state[FACTORS][0][0]) if "global" in self.rates else 1.0
        return super().server_lr(arm, gradient) * factor

    @torch.no_grad()
    def aggregate(self, arm: Arm) -> None:
        """Change the factors, then step as FedAvg does."""
        gradient = arm.pseudo_gradient()
        if gradient is not None:
            (factors,), last = arm.server_state[FACTORS], arm.server_state[UPDATE]
            change = arm.server.get("scale", 0.0) * inner_product(gradient, last)
            for place, bounds in enumerate((self.bounds, self.client_bounds)):
                factors[place] = clipped(float(factors[place]) + change, bounds)
            torch._foreach_copy_(last, gradient)
            arm.server_state[SENDERS][0].copy_(arm.state_sum(SENDERS)[0])
        super().aggregate(arm)

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the factors of the server."""
        factors = dict(zip(("global", "server"), arm.server_state[FACTORS][0].tolist(), strict=True))
        return {f"fedhyper/{name}": factors[name] for name in self.rates if name in factors}

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse a scale that is not above 0, too."""
        super().check_values(side, values)
        name = "scale" if side == "server" else "hyper_scale"
        number(f"`scale` (`{name}` in a space)", values.get(name, 1.0), above=0, why="with 0 no rate changes")

    def identity(self) -> dict[str, Any]:
        """Return the settings, with rates and bounds."""
        own = {"rates": sorted(self.rates), "bounds": list(self.bounds), "client_bounds": list(self.client_bounds)}
        return {**super().identity(), **own}


class _ScaledSteps:
    """A client's steps, with the optimizer's learning rates times a factor."""

    def __init__(self, run: LocalRun, rates: Sequence[str], bounds: Sequence[float]) -> None:
        self._run, self._follows, self._bounds = run, "client" in rates, bounds
        self._groups = [group for optimizer in run.local.trainer.optimizers for group in optimizer.param_groups]
        state = run.arm.server_state
        self._factor = float(state[FACTORS][0][1]) if "server" in rates else 1.0
        self._update, self._senders = state[UPDATE], max(1.0, float(state[SENDERS][0]))
        self._last: Sequence[Tensor] = ()

    def around(self, step: Step, batch: Any, batch_number: int) -> Any:
        """Take a step at another rate, and see what it says about the next one's."""
        rates = [group["lr"] for group in self._groups]
        before = [one.detach().clone() for one in self._run.trained] if self._follows else []
        for group, rate in zip(self._groups, rates, strict=True):
            group["lr"] = rate * self._factor
        try:
            output = step(batch, batch_number)
        finally:
            for group, rate in zip(self._groups, rates, strict=True):
                group["lr"] = rate
        if self._follows and output is not None:  # else the module has skipped the batch
            self._follow(torch._foreach_sub([one.detach() for one in self._run.trained], before))
        return output

    def _follow(self, way: Sequence[Tensor]) -> None:
        if self._last:
            agrees = inner_product(way, self._last) - OF_UPDATE * inner_product(way, self._update) / self._senders
            grown = self._factor * min(MOST, 1 + float(self._run.values["hyper_scale"]) * agrees)
            self._factor = clipped(grown, self._bounds)
        self._last = way


def _bounds(name: str, given: Sequence[float]) -> tuple[float, float]:
    low, high = given
    number(f"the first of `{name}`", low, above=0, high=1)
    return float(low), float(number(f"the second of `{name}`", high, low=1))
