"""The base of federated algorithms: local training and aggregation, which the papers write as Loc_c and Agg_b."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from lightning_fedhpo.arguments import check_kinds, did_you_mean, number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.binding.lr_schedules import decayed
from lightning_fedhpo.client.fast_sgd import step_of
from lightning_fedhpo.client.local_run import LOCAL_EPOCHS, LocalRun
from lightning_fedhpo.types import ClientResult, Config, plain


class Algorithm:
    """Base of all federated algorithms: FedAvg's averaging, and the methods that a subclass may override.

    :meth:`server_optimizer`, :meth:`server_options` and :meth:`server_lr` change the aggregation;
    :meth:`added_gradient` and :meth:`carried` change local training; :meth:`initial_state` and :meth:`receive` keep
    state on the server and on clients; :meth:`check_values` checks hyperparameters; :meth:`figures` are logged.

    Attributes:
        sizes: The number of training examples of each client of the federation, from the first round on.
        needs_lr_sums: Whether :meth:`receive` needs ``ClientResult.lr_sums``.
        start_round: The first round in which all client hyperparameters take effect; their proof looks there.
        travels: Names of the server state that is sent to each client and comes back changed. The ledger counts its
            bytes both ways.
        broadcasts: Names of the server state that is sent to each client and does not come back; counted one way.
        keeps: Names of the tensors that clients keep by ``arm.keep``.
        settings: Names of the constructor's arguments, beside hyperparameters, that a checkpoint must agree with.

    Args:
        client: Hyperparameters of local training beyond the optimizer's own, with defaults.
        server: Hyperparameters of aggregation, with defaults.
        weighting: ``"examples"`` weighs a client by its training examples, ``"uniform"`` counts all alike.
        local: Parameters and buffers that never leave the client, by shell patterns of their names (``"head.*"``, as in
            FedPer) or by types of layers (``"batchnorm"``, as in FedBN). With it there is a client hyperparameter
            ``local_epochs``: so many epochs before the others move only what is local, and the others only what is
            not, as in FedRep; 0, the default, trains all together.
    """

    sizes: np.ndarray[Any, Any] = np.zeros(0, np.int64)
    needs_lr_sums: bool = False
    start_round: int = 0
    travels: Sequence[str] = ()
    broadcasts: Sequence[str] = ()
    keeps: Sequence[str] = ()
    settings: Sequence[str] = ()

    def __init__(
        self,
        *,
        client: Mapping[str, float] | None = None,
        server: Mapping[str, float] | None = None,
        weighting: Literal["examples", "uniform"] = "examples",
        local: str | Sequence[str] = (),
    ) -> None:
        check_kinds(Algorithm, locals())
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.client: dict[str, float] = {**plain(client or {}), **({LOCAL_EPOCHS: 0} if self.local else {})}
        self.server: dict[str, float] = plain(server or {})
        self.weighting = weighting
        self.check_values("client", self.client)
        self.check_values("server", self.server)

    @property
    def clients(self) -> int:
        """The number of clients in the federation."""
        return len(self.sizes)

    def server_optimizer(self, weights: list[Tensor], config: Config) -> Optimizer:
        """Return the optimizer that follows the pseudo-gradient ``w - sum n_i w_i``."""
        return torch.optim.SGD(weights, lr=config["lr"], **self.server_options(config))

    def server_options(self, config: Config) -> dict[str, Any]:
        """Return the optimizer's options beside ``lr``; they are set anew in every round, since tuners change them.

        Names that the optimizer's parameter groups do not have are left out.
        """
        return {"momentum": config.get("momentum", 0.0)}

    def server_lr(self, arm: Arm, gradient: Sequence[Tensor]) -> float:
        """Return the rate of the server's step along the round's pseudo-gradient: ``lr``, decayed.

        Called before the round is closed, so the sums of ``arm.add_state`` are there, and ``arm.total`` is the sum of
        the clients' weights.
        """
        return decayed(arm.server["lr"], arm.server.get("decay", 0.0), arm.rounds)

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return the server's initial state beside the weights, by name."""
        return {}

    def sent(self, arm: Arm) -> Sequence[Tensor]:
        """Return the weights that clients train from; those that are evaluated are ``arm.weights``."""
        return arm.weights

    def receive(self, arm: Arm, result: ClientResult) -> None:
        """Add a client's model to the arm's sums. Called for every finite result, while its tensors live.

        An algorithm with state adds to it here, by ``arm.add_state`` and ``arm.keep``. Both take effect when the round
        is aggregated.
        """
        arm.add(result, self.weight(result) * result.job.weight)

    def added_gradient(
        self, weights: Sequence[Tensor], start: Sequence[Tensor], hyperparameters: Config, carried: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the gradient that the algorithm adds to that of a client's loss, a tensor for each of ``weights``.

        Called at every step, before gradients are clipped, with the weights that the client received as ``start``. It
        must be a pure function of tensors: the vectorized executor maps it over clients, and hyperparameters are then
        tensors without a dimension.
        """
        raise NotImplementedError

    def carried(self, arm: Arm, client: int | None) -> Sequence[Tensor]:
        """Return a client's own tensors for :meth:`added_gradient`, such as SCAFFOLD's ``c - c_i``.

        Called before a job trains, sometimes more than once, so it must change nothing. Number and shapes of the
        tensors are the same for all clients. ``client`` is None for one of another federation, which has never trained.
        """
        return ()

    @property
    def keeps_client_state(self) -> bool:
        """Whether clients keep parameters or state of their own."""
        return bool(self.local or self.keeps)

    def train_locally(self, run: LocalRun) -> None:
        """Train one client, by default by ``run.train()``.

        For what an added gradient cannot do: two models, an average of the iterates, a gradient after training.
        """
        run.train()

    @property
    def adds_gradient(self) -> bool:
        """Whether the algorithm adds to the gradients by :meth:`added_gradient`."""
        return type(self).added_gradient is not Algorithm.added_gradient

    @property
    def changes_gradient(self) -> bool:
        """Whether gradients are changed between backward and step, which a :meth:`train_locally` may do, too."""
        return self.adds_gradient or bool(self.local)

    @property
    def overrides_local_training(self) -> bool:
        """Whether :meth:`train_locally` does more than train, which the vectorized executor cannot do."""
        return type(self).train_locally is not Algorithm.train_locally

    def weight(self, result: ClientResult) -> float:
        """Return a client's weight in the mean, before weights are normalised.

        One that depends on the arm's hyperparameters is given to ``arm.add`` in :meth:`receive`.
        """
        return float(result.train_examples) if self.weighting == "examples" else 1.0

    def aggregate(self, arm: Arm) -> None:
        """Take one step of the server's optimizer along the round's pseudo-gradient."""
        gradient = arm.pseudo_gradient()
        if gradient is not None:
            self.step(arm, gradient)
        arm.commit()

    def step(self, arm: Arm, gradient: Sequence[Tensor]) -> None:
        """Take one step of the server's optimizer along a gradient; the round stays open.

        For an :meth:`aggregate` whose pseudo-gradient, or whose weights to step from, are others than the arm's.
        """
        lr = self.server_lr(arm, gradient)
        options = self.server_options(arm.server)
        for group in arm.optimizer.param_groups:
            group.update({name: value for name, value in options.items() if name in group}, lr=lr)
        for tensor, grad in zip(arm.weights, gradient, strict=True):
            tensor.grad = grad
        step_of(arm.optimizer)()
        for tensor in arm.weights:
            tensor.grad = None

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return what is logged of an arm after its aggregation, by names such as ``"fedexp/lr"``."""
        return {}

    def check_server_names(self, names: Sequence[str]) -> None:
        """Refuse server hyperparameters that this algorithm does not have."""
        unknown = [name for name in dict.fromkeys(names) if name not in self.server]
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no server hyperparameter {', '.join(map(repr, unknown))}: its aggregation "
                f"takes {', '.join(self.server) or 'none'}. Leave it out, or take an algorithm that has it."
                f"{did_you_mean(unknown[0], self.server)}"
            )

    def check_training(self, optimizers: Sequence[Optimizer], tuned: Sequence[str], epochs: int) -> None:
        """Refuse, or warn of, a local training that the method was not made for.

        ``tuned`` names hyperparameters, ``epochs`` is the most that a client may get.
        """

    def check_values(self, side: Literal["client", "server"], values: Config) -> None:
        """Refuse impossible values: the constructor checks the defaults, the set-up what may be set or drawn."""
        for name, value in values.items():
            number(f"the {side}'s `{name}`", value)
        if side == "client":
            whole(f"`{LOCAL_EPOCHS}`", values.get(LOCAL_EPOCHS, 0), 0)
        if side == "server":
            number("the server's `lr`", values.get("lr", 1.0), above=0, why="with 0 the model never changes")
            number("the server's `momentum`", values.get("momentum", 0.0), low=0, below=1)
            number("the server's `decay`", values.get("decay", 0.0), low=0, below=1, why="lr_t = lr * (1 - decay)**t")

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: the class and its settings."""
        return {
            "name": type(self).__name__,
            "client": dict(self.client),
            "server": dict(self.server),
            "weighting": self.weighting,
            "local": list(self.local),
            **{name: getattr(self, name) for name in self.settings},
        }

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in {**self.client, **self.server}.items())
        return f"{type(self).__name__}({settings})"
