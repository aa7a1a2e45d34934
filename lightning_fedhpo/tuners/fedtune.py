"""FedTune: every client learns its own configuration, by its model's effect on the server's validation loss.

"FedTune: Differentiable Hyperparameter Optimization for Personalized Federated Learning", under review; the mathematics
is in :mod:`.fedtune_policy`, the loss of the clients' weighted outputs in :mod:`.ensemble_loss`. Deviations: steps are
taken on logits; the buffer of global models is bounded; a client that diverged has no output, so its decision gets the
round's largest derivative against it. ``credit="federated"`` is ours, for runs without data on the server: the loss is
that of all clients' validation examples, for which every client would have to evaluate every model. The ledger counts
the bytes that this takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, number, whole
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.space.search_space import Choice, SearchSpace
from lightning_fedhpo.tuners import fedtune_policy as policy
from lightning_fedhpo.tuners.base import RunPlan, Tuner
from lightning_fedhpo.tuners.ensemble_loss import derivative, finite, outputs_of
from lightning_fedhpo.tuners.fedtune_state import FedTuneState
from lightning_fedhpo.tuners.model_buffer import ModelBuffer
from lightning_fedhpo.tuners.weight_sharing import MOST_CONFIGS
from lightning_fedhpo.types import ClientResult, Config, RoundContext, Suggestion


class FedTune(Tuner):
    """Learn a distribution over shared candidates for every client of the federation.

    Every client takes part in every round, so the cohort has to be the federation. It works best with
    ``FederatedLoop(target="server", retrain=...)``, which trains with the found configurations from the start.

    Args:
        space: The product of its client part's :class:`~lightning_fedhpo.Choice` dimensions are the candidates;
            by default those of the search's space.
        lr: The step size of the policy. With ``"sgd"`` it is large, since derivatives are about the loss divided by the
            number of clients; with ``"adam"`` about 0.1.
        optimizer: ``"sgd"`` takes the plain steps of the paper's equation 11, ``"adam"`` those of DSNAS.
        credit: Where credits come from: the ``"server"``'s validation examples, or all clients' (``"federated"``).
        buffer: Which global model a joint configuration begins from: its own (``"joint"``), that of the ``"nearest"``
            one, or one model that is ``"shared"`` by all.
        capacity: How many global models are kept; the least recently used is dropped.
        relaxation: ``"one-hot"`` trains the candidate that was drawn for a client, ``"concrete"`` all of them, weighted
            by a soft sample (equations 5 to 7), for few clients and candidates.
        temperature: Of the soft sample.
        center: Subtract the mean of all derivatives, which is the derivative of the ensemble's scale.
        loss: The name of the loss that credits are derivatives of; the monitored one by default.

    Example:
        >>> from lightning_fedhpo import Choice, SearchSpace
        >>> space = SearchSpace(client={"lr": Choice([0.1, 0.01]), "weight_decay": Choice([0.0, 1e-3, 1e-2])})
        >>> len(FedTune(space).configs)
        6
    """

    space: SearchSpace
    needs_everyone = True
    lists_values = True
    settings = ("lr", "optimizer", "credit", "buffer", "capacity", "relaxation", "temperature", "center", "loss")

    def __init__(
        self,
        space: SearchSpace | None = None,
        lr: float = 5.0,
        optimizer: Literal["sgd", "adam"] = "sgd",
        credit: Literal["server", "federated"] = "server",
        buffer: Literal["joint", "shared", "nearest"] = "joint",
        capacity: int = 64,
        relaxation: Literal["one-hot", "concrete"] = "one-hot",
        temperature: float = 1.0,
        center: bool = False,
        loss: str | None = None,
    ) -> None:
        check_kinds(FedTune, locals())
        if relaxation == "concrete" and buffer != "shared":
            raise ValueError(
                f'`buffer` must be "shared" with relaxation="concrete", got {buffer!r}: all candidates are trained, so '
                "that there is no joint configuration to keep a model for."
            )
        self.lr = number("lr", lr, above=0)
        self.optimizer = optimizer
        self.credit = credit
        self.buffer = buffer
        self.capacity = whole("capacity", capacity)
        self.relaxation = relaxation
        self.temperature = number("temperature", temperature, above=0)
        self.center = center
        self.loss = loss
        self._clients, self._monitor = 0, ""
        self.own_space(space)
        self.reset()

    def use_space(self, space: SearchSpace) -> None:
        """Make the candidates of a space's listed values."""
        super().use_space(space)
        for name, dimension in space.client.items():
            if not isinstance(dimension, Choice):
                raise ValueError(
                    f"FedTune chooses among listed values, got {dimension!r} for {name!r}: list them, as in "
                    f"{name}=Choice({[dimension.quantile(part) for part in (0.0, 0.5, 1.0)]!r})."
                )
        options = [dimension.options for dimension in space.client.values() if isinstance(dimension, Choice)]
        count = math.prod(map(len, options))
        if count > MOST_CONFIGS:
            raise ValueError(
                f"FedTune has at most {MOST_CONFIGS} candidates, got {count} by all combinations of the values of "
                f"{', '.join(space.client)}: list fewer values, or fewer hyperparameters."
            )
        self._candidates = [dict(zip(space.client, values, strict=True)) for values in product(*options)]
        self.repeats = len(self._candidates) if self.relaxation == "concrete" else 1

    def reset(self) -> None:
        """Forget every arm."""
        self._arms: dict[int, FedTuneState] = {}

    def plan(self, plan: RunPlan) -> None:
        """Refuse a run in which not all clients take part, or that has no examples to take credits from."""
        if plan.cohort != plan.clients:
            raise MisconfigurationException(
                f"FedTune trains every client in every round, got a cohort of {plan.cohort} and a federation of "
                f"{plan.clients}: set FederatedLoop(cohort={plan.clients})."
            )
        if plan.monitor is None:
            raise MisconfigurationException(
                "FedTune learns from a loss, and FederatedLoop(monitor=None) scores nothing: name a monitor."
            )
        if self.repeats > 1 and plan.keeps_client_state:
            raise MisconfigurationException(
                'FedTune(relaxation="concrete") trains a client with every candidate in a round, and an algorithm with '
                'parameters or state of the client\'s own (`local=`) has one for each client: use "one-hot".'
            )
        validation = plan.server if self.credit == "server" else plan.pooled_validation()
        if validation is None and self.credit == "server":
            raise MisconfigurationException(
                "FedTune takes credits from the server's validation examples, of which this run has none: pass "
                "FederatedLoop(server_data=...) or FederatedData(..., server_fraction=0.1), or take them from the "
                'clients\' own by FedTune(credit="federated").'
            )
        if validation is None:
            raise MisconfigurationException(
                'FedTune(credit="federated") takes credits from clients\' validation examples, and no client has any: '
                "raise the second of `fractions`."
            )
        self._clients, self._monitor = plan.clients, self.loss or plan.monitor
        self.models_received = plan.clients - 1 if self.credit == "federated" else 0
        self._sign = plan.sign if self.loss is None else 1.0
        self._validation = validation

    def rehearse(self, arm: Arm) -> None:
        """Take the derivative of a single model's loss, to find a module without one before the first round."""
        outputs = outputs_of(self._validation, arm.weights, arm.buffers, None, arm.client)
        derivative(self._validation, [outputs], torch.ones(1, dtype=torch.float64), self._monitor)

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Draw every client's candidate, and load the model of that joint configuration into the arm."""
        state = self._state(arm)
        state.cohort = list(cohort[:: self.repeats])
        draw = seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)
        if self.relaxation == "concrete":
            state.decided = policy.relaxed(state.logits, draw.random(state.logits.shape), self.temperature)
            weights = state.decided.tolist()
            return [
                Suggestion(config, place, weights[client][place])
                for client in state.cohort
                for place, config in enumerate(self._candidates)
            ]
        state.decided = np.array(policy.drawn(state.logits, draw.random(self._clients)), dtype=np.float64)
        joint = state.joint
        state.buffer.fetch(arm, joint)
        return [Suggestion(self._candidates[joint[client]], joint[client]) for client in cohort]

    def receive(self, arm: Arm, result: ClientResult) -> Mapping[str, Any] | None:
        """Keep the client's outputs for the validation examples, if they are finite."""
        personal = result.personal or None
        outputs = outputs_of(self._validation, result.weights, result.buffers, personal, result.job.config)
        return {"outputs": outputs} if finite(outputs) else None

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Keep the new global model, and step every policy against its decision's derivative (equation 11)."""
        state = self._state(arm)
        if self.relaxation == "one-hot":
            state.buffer.store(arm, state.joint)
        state.credits = np.full(self._clients, np.nan)
        received = [result for result in results if result.received is not None]
        slopes = self._slopes(received) if received else np.full(1, np.nan)
        if np.isfinite(slopes).all():  # the loss of finite outputs may overflow
            state.step(self._gradient(state, received, slopes), self.lr, self.optimizer)

    def _slopes(self, received: Sequence[ClientResult]) -> policy.Array:
        """Return the derivative of the loss with respect to each model's dummy factor of one (equation 10)."""
        examples = np.array([result.train_examples for result in received], dtype=np.float64)
        shares = examples / (examples * [result.job.weight for result in received]).sum()
        outputs = [result.received["outputs"] for result in received if result.received is not None]
        weights = torch.from_numpy(shares * [result.job.weight for result in received])
        slopes = derivative(self._validation, outputs, weights, self._monitor).numpy()
        return self._sign * shares * slopes  # type: ignore[no-any-return]  # numpy's operators are

    def _gradient(self, state: FedTuneState, received: Sequence[ClientResult], slopes: policy.Array) -> policy.Array:
        """Note every client's credit, and return the gradient on the logits."""
        concrete = self.relaxation == "concrete"
        slopes = slopes - slopes.mean() if self.center else slopes
        every = np.zeros(state.decided.shape)
        every[state.cohort] = np.abs(slopes).max()  # stays so for a client that diverged: it has no derivative
        for result, slope in zip(received, slopes, strict=True):
            every[(result.job.client, result.job.index or 0) if concrete else result.job.client] = slope
        effects = (every * state.decided).sum(axis=1) if concrete else every
        state.credits[state.cohort] = -effects[state.cohort]
        if concrete:
            return policy.relaxed_gradient(state.logits, state.decided, every, self.temperature)
        return policy.policy_gradient(state.logits, state.decided.astype(int), every)

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        """Drop the global models of arms that the search has taken out."""
        live = {arm.index for arm in arms}
        for index, state in self._arms.items():
            if index not in live:
                state.buffer = self._empty_buffer()

    def clients(self, arm: Arm) -> Sequence[Config]:
        """Return every client's most likely candidate."""
        state = self._arms.get(arm.index)
        return [] if state is None else [self._candidates[int(place)] for place in state.logits.argmax(axis=1)]

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return one client's most likely candidate."""
        return self.clients(arm)[client]

    @property
    def probabilities(self) -> Tensor:
        """The best arm's probabilities, a row a client."""
        if self.leader is None or self.leader not in self._arms:
            raise RuntimeError("FedTune has no probabilities yet: `trainer.fit` makes them for every arm.")
        return torch.from_numpy(policy.softmax(self._arms[self.leader].logits))

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The candidates that all clients share."""
        return [dict(config) for config in self._candidates]

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the mean entropy, and every client's most likely candidate, its probability and the last credit."""
        return self._arms[arm.index].figures()

    def configurations(self, arm: Arm) -> list[dict[str, Any]]:
        """Return a row for every client and candidate."""
        state = self._arms.get(arm.index)
        return [] if state is None else state.rows(self._candidates)

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's policies and global models."""
        return {"arms": {index: state.state_dict() for index, state in self._arms.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back."""
        saved = state_dict["arms"].items()
        self._arms = {int(index): FedTuneState.from_state(state, self._empty_buffer()) for index, state in saved}
        here = self._clients, len(self._candidates)
        for clients, candidates in {one.logits.shape for one in self._arms.values()} - {here}:
            raise ValueError(
                f"the checkpoint's FedTune decides for {clients} clients among {candidates} candidates, this one for "
                f"{here[0]} among {here[1]}: resume with the same federation and space, or start anew."
            )

    def _state(self, arm: Arm) -> FedTuneState:
        if arm.index not in self._arms:
            size = len(self._candidates)
            self._arms[arm.index] = FedTuneState.uniform(self._clients, size, self._empty_buffer())
        return self._arms[arm.index]

    def _empty_buffer(self) -> ModelBuffer:
        return ModelBuffer(self.buffer, self.capacity)
