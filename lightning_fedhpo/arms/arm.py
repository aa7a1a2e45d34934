"""One independent federated run: weights, server optimizer, and the sums of the present round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from lightning_fedhpo import machine
from lightning_fedhpo.arms.client_states import ClientStates
from lightning_fedhpo.arms.copies import copied
from lightning_fedhpo.arms.round_sums import RoundSums, by_kind
from lightning_fedhpo.arms.state_files import ClientState, Spill
from lightning_fedhpo.types import ClientResult, Config

Model = dict[str, Any]
"""Weights, buffers, server optimizer and server state, as tensors in containers."""
LOCAL = "local"
"""The name of the parameters and buffers that never leave a client, in its state."""


class ServerMethod(Protocol):
    """What an arm is made by: the server's part of an algorithm."""

    keeps: Sequence[str]
    travels: Sequence[str]
    broadcasts: Sequence[str]

    @property
    def server(self) -> Config:
        """The server's hyperparameters, with defaults."""

    def server_optimizer(self, weights: list[Tensor], config: Config) -> Optimizer:
        """Return the optimizer that follows the pseudo-gradient."""

    def initial_state(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return the server's initial state beside the weights."""


class Arm:
    """The state of one federated run, and the running sums of its present round.

    Nothing that a checkpoint holds changes inside a round: results are only summed up, and the algorithm's
    ``aggregate`` turns the sums into new weights. So a checkpoint taken inside a round resumes at that round's start,
    exactly.

    Attributes:
        index: The arm's number in the run.
        server: The server's hyperparameters that are in force, with the algorithm's defaults.
        weights: The model's weights; clients train from them.
        buffers: The tensors that are averaged without an optimizer.
        optimizer: The server's optimizer, on ``weights``.
        rounds: How many rounds it has run.
        scores: Its scores so far.
        server_state: What the server keeps beside weights, by name: control variates, dual variables.
        client_state: What each client keeps, by client and name; only clients that have kept something are in it.
        ancestors: In rising order, after how many rounds it became a copy of which arm.
        cohort: How many clients its rounds ask for; None for as many as the loop says.
        retrains: Whether it is no part of the search, but trains what the search has found.
        total: The weight of the round's results so far, None where none has come.
        arrived: The clients' states that the round will commit.

    Args:
        index: The arm's number in the run.
        algorithm: Makes the server's optimizer and takes its step.
        server: The server's configuration; what it leaves out is the algorithm's default.
        weights: The initial weights that clients train, copied.
        buffers: The initial tensors that are averaged without an optimizer (batch-norm statistics), copied.
        client: What a search has drawn for all of the arm's clients; a tuner's suggestions go over it.
        clients: What it has drawn for each client, which goes over `client`; empty where all are alike.
        spill: Where states of clients go that memory has no room for.
    """

    def __init__(
        self,
        index: int,
        algorithm: ServerMethod,
        server: Config,
        weights: Sequence[Tensor],
        buffers: Sequence[Tensor] = (),
        client: Config | None = None,
        clients: Sequence[Config] = (),
        spill: Spill | None = None,
    ) -> None:
        self.index = index
        self.server = {**algorithm.server, **server}
        self.weights = [tensor.detach().clone().requires_grad_() for tensor in weights]
        self.buffers = [tensor.detach().clone() for tensor in buffers]
        self.optimizer: Optimizer = algorithm.server_optimizer(self.weights, self.server)
        self.server_state = algorithm.initial_state(self.weights)
        self.client_state = ClientStates(spill)
        self._travels, self._broadcasts = tuple(algorithm.travels), tuple(algorithm.broadcasts)
        self._keeps = (LOCAL, *algorithm.keeps)
        self.client = dict(client or {})
        self.clients = [dict(config) for config in clients]
        self.rounds = 0
        self.scores: list[float] = []
        self.ancestors: list[tuple[int, int]] = []
        self.retrains = False
        self.cohort: int | None = None
        self.eliminated_at: int | None = None
        self.finished = False
        self.discard()

    def config_of(self, client: int) -> dict[str, Any]:
        """Return the configuration that the search has drawn for one client."""
        return {**self.client, **(self.clients[client] if self.clients else {})}

    @property
    def nbytes(self) -> int:
        """The bytes of the arm's model, with the server state that travels both ways."""
        along = [tensor for name in self._travels for tensor in self.server_state[name]]
        return sum(tensor.nbytes for tensor in (*self.weights, *self.buffers, *along))

    @property
    def nbytes_broadcast(self) -> int:
        """The bytes of the server state that clients only receive."""
        return sum(tensor.nbytes for name in self._broadcasts for tensor in self.server_state[name])

    def kept(self, client: int | None, name: str) -> list[Tensor] | None:
        """Return the tensors that a client has kept under a name, None if there are none."""
        found = self.client_state[client].get(name) if client is not None and client in self.client_state else None
        # Those from a file or a checkpoint are on the CPU.
        return None if found is None else [tensor.to(self.weights[0].device) for tensor in found]

    def discard(self) -> None:
        """Discard the sums of the present round."""
        self.total: float | None = None
        self.arrived: dict[int, ClientState] = {}
        self._sums: RoundSums | None = None

    def _begun_sums(self) -> RoundSums:
        if self._sums is None:
            self._sums = RoundSums(self.weights, self.buffers, self.server_state)
        return self._sums

    def add(self, result: ClientResult, weight: float) -> None:
        """Add one client's model to the round's sums; the client's tensors are free for the next job afterwards.

        If the model is a row of a stack, the stack is free after :meth:`add_stacked`: rows are summed up together.
        """
        if result.personal:
            self.keep(result.job.client, LOCAL, result.personal)
        self.total = (self.total or 0.0) + weight
        self._begun_sums().add(result.weights, result.buffers, weight)

    def add_stacked(self) -> None:
        """Sum up the rows of a stack that wait for it, and let go of the stack."""
        if self._sums is not None:
            self._sums.add_stacked()

    def add_state(self, name: str, tensors: Sequence[Tensor], weight: float = 1.0) -> None:
        """Add a client's tensors to the round's sum of one part of the server state."""
        self._begun_sums().add_state(name, tensors, weight)

    def state_sum(self, name: str) -> list[Tensor]:
        """Return the round's sum for a part of the server state, zeros if no client has sent any."""
        return self._begun_sums().of_state[name]

    def keep(self, client: int, name: str, tensors: Sequence[Tensor]) -> None:
        """Copy tensors into a client's state; they are in force when the round is committed."""
        if name not in self._keeps:
            raise KeyError(f"clients keep {name!r}, which the algorithm does not name: set keeps = ({name!r},) in it")
        self.arrived.setdefault(client, {})[name] = [tensor.detach().clone() for tensor in tensors]

    def sums(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the round's sums and its largest integers, which other processes' are combined with."""
        sums = self._begun_sums()
        sums.add_stacked()
        of_state = [tensor for tensors in sums.of_state.values() for tensor in tensors]
        return [*sums.delta, *sums.floats, *of_state], list(sums.integers)

    def take(self, total: float, arrived: Mapping[int, ClientState]) -> None:
        """Take over the weight and the clients' states that belong to sums of several processes."""
        self.total = total
        device = self.weights[0].device
        self.arrived = {
            client: {name: [tensor.to(device) for tensor in tensors] for name, tensors in state.items()}
            for client, state in arrived.items()
        }

    def pseudo_gradient(self) -> list[Tensor] | None:
        """Return ``w - sum n_i w_i``, or None where no client's model arrived this round. Changes nothing."""
        if self._sums is None or not self.total:
            return None
        self._sums.add_stacked()
        mean = torch._foreach_div(self._sums.delta, self.total)
        return [delta.to(weight.dtype) for delta, weight in zip(mean, self.weights, strict=True)]

    @torch.no_grad()
    def commit(self) -> None:
        """Take the averaged buffers and the clients' states, and close the round."""
        floats, integers = by_kind(self.buffers)
        if self._sums is not None and self.total is not None:
            if self.total and floats:
                torch._foreach_copy_(floats, torch._foreach_div(self._sums.floats, self.total))
            for tensor, largest in zip(integers, self._sums.integers, strict=True):
                tensor.copy_(largest)
        for client, state in self.arrived.items():
            self.client_state.update(client, state)
        self.rounds += 1
        self.discard()
        if self.client_state.in_files:
            machine.give_back()  # the round's states are interleaved with blocks that it has freed

    def model(self) -> Model:
        """Return a copy of weights, buffers, server optimizer and server state."""
        model = {
            "weights": [tensor.detach() for tensor in self.weights],
            "buffers": self.buffers,
            "optimizer": self.optimizer.state_dict(),
            "server_state": self.server_state,
        }
        return {name: copied(part) for name, part in model.items()}

    @torch.no_grad()
    def restore(self, model: Mapping[str, Any]) -> None:
        """Copy a model that :meth:`model` returned into this arm."""
        torch._foreach_copy_(self.weights, model["weights"])
        if self.buffers:
            torch._foreach_copy_(self.buffers, model["buffers"])
        self.optimizer.load_state_dict(copied(model["optimizer"]))
        device, kept = self.weights[0].device, copied(model["server_state"])
        self.server_state = {name: [tensor.to(device) for tensor in tensors] for name, tensors in kept.items()}

    def become(self, other: Arm, server: Config, client: Config) -> None:
        """Become a copy of another arm, with hyperparameters of its own; its number and its count of rounds stay.

        The scores are copied, too, so that the arm is judged by what it is now.
        """
        self.restore(other.model())
        before, self.client_state = self.client_state, other.client_state.copy()
        before.clear()
        self.scores = list(other.scores)
        self.ancestors = [*other.ancestors, (self.rounds, other.index)]
        self.server, self.client = dict(server), dict(client)
        self.clients = [dict(config) for config in other.clients]
        self.discard()

    @property
    def live(self) -> bool:
        """Whether the arm takes part in rounds."""
        return self.eliminated_at is None and not self.finished

    def eliminate(self, number: int) -> None:
        """Take the arm out after a round and free its tensors; configuration and scores stay."""
        self.eliminated_at = number
        self.weights, self.buffers, self.server_state = [], [], {}
        self.client_state.clear()
        self.optimizer.state.clear()
        self.optimizer.param_groups.clear()
        self.discard()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that affects the arm's next round."""
        return {
            **(self.model() if self.eliminated_at is None else {}),
            "index": self.index,
            "server": dict(self.server),
            "client_state": self.client_state.state_dict(),
            "rounds": self.rounds,
            "eliminated_at": self.eliminated_at,
            "finished": self.finished,
            "retrains": self.retrains,
            "cohort": self.cohort,
            "ancestors": [list(one) for one in self.ancestors],
            "scores": torch.tensor(self.scores, dtype=torch.float64),
            "client": dict(self.client),
            "clients": [dict(config) for config in self.clients],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the state of an arm of the same model and algorithm."""
        if state["eliminated_at"] is not None:
            self.eliminate(state["eliminated_at"])
        else:
            self.restore(state)
        self.client_state.load_state_dict(state["client_state"])
        self.scores = state["scores"].tolist()
        self.ancestors = [(rounds, index) for rounds, index in state["ancestors"]]
        self.rounds, self.finished, self.retrains = state["rounds"], state["finished"], state["retrains"]
        self.cohort = state["cohort"]
        self.server, self.client = dict(state["server"]), dict(state["client"])
        self.clients = [dict(config) for config in state["clients"]]
        self.discard()
