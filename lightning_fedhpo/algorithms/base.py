"""What a federated method is here: the pair of local training and aggregation that the papers write Loc_c and Agg_b."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from lightning_fedhpo.arguments import check_kinds, number
from lightning_fedhpo.client.fast_sgd import step_of
from lightning_fedhpo.types import ClientResult, Config, plain

if TYPE_CHECKING:
    from lightning_fedhpo.run.arm import Arm


def decayed(lr: float, decay: float, rounds: int) -> float:
    """Return ``lr * (1 - decay)**t``, the papers' server learning rate in the arm's round t.

    >>> decayed(2.0, 0.5, rounds=2)
    0.5
    """
    return lr * (1.0 - decay) ** rounds


class Algorithm:
    """Base of all federated methods: FedAvg's averaging, with everything a method may change around it.

    A subclass names its hyperparameters with their defaults in ``client`` and ``server``; it overrides
    :meth:`server_optimizer` and :meth:`server_options` to aggregate otherwise, :meth:`added_gradient` (with
    :meth:`carried`) to train otherwise, :meth:`initial_state` and :meth:`receive` to keep a state of its own,
    :meth:`check_values` to say what its hyperparameters can be.

    Attributes:
        clients: How many clients the federation has; the loop sets it before the first round.
        travels: Names of the server's state that is sent to each client, and whose changes come back. The ledger counts
            their bytes both ways.

    Args:
        client: What local training takes beyond the optimizer's own hyperparameters, with defaults.
        server: What aggregation takes, with defaults.
        weighting: ``"examples"`` weighs a client by its training examples, ``"uniform"`` counts all alike.
        local: Shell patterns of parameters and buffers that never leave the client (``"*bn*"`` is FedBN,
            ``"head.*"`` a personal head).
    """

    clients: int = 0
    travels: Sequence[str] = ()

    def __init__(
        self,
        *,
        client: Mapping[str, float] | None = None,
        server: Mapping[str, float] | None = None,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        check_kinds(Algorithm, locals())
        self.client: dict[str, float] = plain(client or {})
        self.server: dict[str, float] = plain(server or {})
        self.weighting = weighting
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.check_values("client", self.client)
        self.check_values("server", self.server)

    def server_optimizer(self, weights: list[Tensor], config: Config) -> Optimizer:
        """Return the optimizer that will follow the pseudo-gradient ``w - sum n_i w_i``."""
        return torch.optim.SGD(weights, lr=config["lr"], **self.server_options(config))

    def server_options(self, config: Config) -> dict[str, Any]:
        """Return the options of the server's optimizer beside ``lr``, as its parameter groups have them.

        They are set anew in every round, so that a value that a tuner has changed is in force in the next one.
        """
        return {"momentum": config.get("momentum", 0.0)}

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return what the server keeps beside the weights when an arm starts, by name; nothing by default."""
        return {}

    def receive(self, arm: Arm, result: ClientResult) -> None:
        """Take a client's result while its tensors live: by default, its model goes into the arm's sums.

        Called for every result that is finite. A method with a state of its own adds to it here by ``arm.add_state``
        and ``arm.keep``; both are pending until the round is aggregated.
        """
        arm.add(result, self.weight(result) * result.job.weight)

    def added_gradient(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], hyperparameters: Config, carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return what the method adds to the gradients of a client's own loss, a tensor for each of ``weights``.

        Called for every step, before gradients are clipped, with the weights as they are, the model that the client
        received as ``start``, and what it has from :meth:`carried`. It is a pure function made of tensor operations: an
        executor may map it over many clients at once, whose hyperparameters are tensors of no dimension then.
        """
        raise NotImplementedError

    def carried(self, arm: Arm, client: int | None) -> Sequence[Tensor]:
        """Return what a client brings to :meth:`added_gradient` beside the model: SCAFFOLD's ``c - c_i``, for one.

        Called before a job trains, at times more than once, so it changes nothing. As many tensors as for any other
        client, of the same shapes, which training does not change.

        Args:
            arm: The arm that the client trains in; one that no client has trained in yet where a module is tried.
            client: The client, or None for one of another federation, which has never trained.
        """
        return ()

    @property
    def keeps_client_state(self) -> bool:
        """Whether clients keep parameters or a state of their own."""
        return bool(self.local) or type(self).receive is not Algorithm.receive

    @property
    def changes_gradient(self) -> bool:
        """Whether the method adds anything to the gradients at all."""
        return type(self).added_gradient is not Algorithm.added_gradient

    def weight(self, result: ClientResult) -> float:
        """Return how much a client's model counts, before weights are normalised."""
        return float(result.train_examples) if self.weighting == "examples" else 1.0

    def aggregate(self, arm: Arm) -> None:
        """Turn the round's sums into the arm's next weights: one step of the server's optimizer."""
        gradient = arm.pseudo_gradient()
        if gradient is not None:
            lr = decayed(arm.server["lr"], arm.server.get("decay", 0.0), arm.rounds)
            options = self.server_options(arm.server)
            for group in arm.optimizer.param_groups:
                group.update({name: value for name, value in options.items() if name in group}, lr=lr)
            for tensor, grad in zip(arm.weights, gradient, strict=True):
                tensor.grad = grad
            step_of(arm.optimizer)()
            for tensor in arm.weights:
                tensor.grad = None
        arm.commit()

    def check(self, side: Literal["client", "server"], names: Sequence[str]) -> None:
        """Refuse server hyperparameters that this method does not have."""
        unknown = [name for name in dict.fromkeys(names) if name not in self.server] if side == "server" else []
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no server hyperparameter {', '.join(map(repr, unknown))}: its aggregation "
                f"takes {', '.join(self.server) or 'none'}. Leave it out, or take an algorithm that has it."
            )

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse values that a hyperparameter of this method cannot have.

        Called with the defaults by the constructor, and before the first round with whatever may be set or drawn. A
        method with rules of its own adds them here.
        """
        for name, value in values.items():
            number(f"the {side}'s `{name}`", value)
        if side == "server":
            check_server(values.get("lr", 1.0), values.get("momentum", 0.0), values.get("decay", 0.0))

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the method and how it is set."""
        return {
            "name": type(self).__name__,
            "client": dict(self.client),
            "server": dict(self.server),
            "weighting": self.weighting,
            "local": list(self.local),
        }

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in {**self.client, **self.server}.items())
        return f"{type(self).__name__}({settings})"


def check_server(lr: float, momentum: float = 0.0, decay: float = 0.0) -> None:
    """Check the three server hyperparameters that most methods share."""
    number("the server's `lr`", lr, above=0, why="with 0 the model never changes")
    number("the server's `momentum`", momentum, low=0, below=1)
    number("the server's `decay`", decay, low=0, below=1, why="lr_t = lr * (1 - decay)**t")
