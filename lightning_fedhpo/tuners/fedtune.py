"""FedTune: every client learns its own configuration, by what its model adds to the server's validation loss.

"FedTune: Differentiable Hyperparameter Optimization for Personalized Federated Learning", under review; the mathematics
is in :mod:`.policy`, the loss of the clients' weighted outputs in :mod:`.ensemble`. Deviations: the
distributions are kept as logits; the buffer of global models is bounded; a decision whose client diverged has no
output, and counts as much against itself as the round's largest derivative. ``credit="federated"`` is ours, for those
who have no data on the server: the loss is that of all clients' validation examples, for which every client would have
to evaluate every model. The ledger counts their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, number, whole
from lightning_fedhpo.run.arm import Arm
from lightning_fedhpo.space.search_space import Choice, SearchSpace
from lightning_fedhpo.tuners import policy
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.tuners.ensemble import Ensemble, finite
from lightning_fedhpo.tuners.learner import Learner
from lightning_fedhpo.tuners.model_buffer import ModelBuffer
from lightning_fedhpo.types import ClientResult, Config, RoundContext, RunPlan, Suggestion


class FedTune(Tuner):
    """Learn a distribution over shared candidates for every client of the federation.

    Every client takes part in every round, so that the cohort has to be the federation. It works best with
    ``FederatedLoop(target="server", retrain=...)``: the configurations that are found are trained anew.

    Args:
        space: The product of its client part's :class:`~lightning_fedhpo.Choice` dimensions are the candidates.
        lr: The step size of the policy. With ``"sgd"`` it is large, since derivatives are small, about the loss divided
            by the number of clients; ``"adam"`` wants about 0.1.
        optimizer: ``"sgd"`` takes the plain steps of the paper's equation 11, ``"adam"`` those of DSNAS.
        credit: Where credits come from: the ``"server"``'s validation examples, or all clients' (``"federated"``).
        buffer: Which global model a joint configuration begins from: its own (``"joint"``), that of the ``"nearest"``
            one, or one model that is ``"shared"`` by all.
        capacity: How many global models are kept; the least recently used goes.
        relaxation: ``"one-hot"`` trains the candidate that was drawn for a client, ``"concrete"`` all of them, weighted
            by a soft sample (equations 5 to 7), for few clients and candidates.
        temperature: Of the soft sample.
        center: Take the mean of all derivatives off, which is that of the ensemble's scale.
        loss: The name of the loss that credits are derivatives of; the monitored one by default.

    Example:
        >>> from lightning_fedhpo import Choice, SearchSpace
        >>> space = SearchSpace(client={"lr": Choice([0.1, 0.01]), "weight_decay": Choice([0.0, 1e-3, 1e-2])})
        >>> len(FedTune(space).candidates_)
        6
    """

    needs_everyone = True
    lists_values = True

    def __init__(
        self,
        space: SearchSpace,
        lr: float = 20.0,
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
        if not space.client:
            raise ValueError("`space` must be a SearchSpace with a client part: FedTune tunes client hyperparameters.")
        for name, dimension in space.client.items():
            if not isinstance(dimension, Choice):
                raise ValueError(
                    f"FedTune chooses among listed values, got {dimension!r} for {name!r}: list them, as in "
                    f"{name}=Choice({dimension.grid(3)!r})."
                )
        if relaxation == "concrete" and buffer != "shared":
            raise ValueError(
                f'`buffer` must be "shared" with relaxation="concrete", got {buffer!r}: all candidates are trained, so '
                "that there is no joint configuration to keep a model for."
            )
        self.space: SearchSpace = space
        self.lr = number("lr", lr, above=0)
        self.optimizer = optimizer
        self.credit = credit
        self.buffer = buffer
        self.capacity = whole("capacity", capacity)
        self.relaxation = relaxation
        self.temperature = number("temperature", temperature, above=0)
        self.center = center
        self.loss = loss
        self.client_names = tuple(space.client)
        options = [dimension.options for dimension in space.client.values() if isinstance(dimension, Choice)]
        self.candidates_ = [dict(zip(space.client, values, strict=True)) for values in product(*options)]
        self.repeats = len(self.candidates_) if relaxation == "concrete" else 1
        self._clients, self._monitor = 0, ""
        self._ensemble: Ensemble | None = None
        self.reset()

    # ------------------------------------------------------------------ the tuner's part of a round

    def reset(self) -> None:
        """Forget every arm."""
        self._learners: dict[int, Learner] = {}

    def plan(self, plan: RunPlan) -> None:
        """Refuse a run in which not all clients take part, or in which there is nothing to take credits from."""
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
        if validation is None:
            what = (
                "FedTune takes credits from the server's validation examples, of which this run has none: pass "
                "FederatedLoop(server_data=...), hold a part out by FederatedData(..., server_fraction=0.1), or take "
                'them from the clients\' own by FedTune(credit="federated")'
                if self.credit == "server"
                else 'FedTune(credit="federated") takes credits from clients\' validation examples, and no client has '
                "any: raise the second of `fractions`"
            )
            raise MisconfigurationException(f"{what}.")
        self._clients, self._monitor = plan.clients, self.loss or plan.monitor
        self.models_received = plan.clients - 1 if self.credit == "federated" else 0
        self._sign = plan.sign if self.loss is None else 1.0
        self._ensemble = Ensemble(validation)

    def rehearse(self, arm: Arm) -> None:
        """Take the derivative of a single model's loss: what cannot be done is found before the first round."""
        ensemble = self._evaluator()
        ensemble.derivative([ensemble.outputs_of(arm)], torch.ones(1, dtype=torch.float64), self._monitor)

    def suggest(self, arm: Arm, cohort: Sequence[int], context: RoundContext) -> list[Suggestion]:
        """Draw every client's candidate, and give the arm the model of that joint configuration."""
        learner = self._learner(arm)
        learner.cohort = list(cohort[:: self.repeats])
        draw = seeding.rng(context.seed, seeding.TUNER, context.round, arm.index)
        if self.relaxation == "concrete":
            learner.decided = policy.relaxed(learner.logits, draw.random(learner.logits.shape), self.temperature)
            every = range(len(self.candidates_))
            weights = [(client, place) for client in learner.cohort for place in every]
            return [
                Suggestion(self.candidates_[place], place, float(learner.decided[client, place]))
                for client, place in weights
            ]
        learner.decided = np.array(policy.drawn(learner.logits, draw.random(self._clients)), dtype=np.float64)
        learner.buffer.fetch(arm, self._key(learner))
        places = [int(learner.decided[client]) for client in cohort]
        return [Suggestion(self.candidates_[place], place) for place in places]

    def receive(self, arm: Arm, result: ClientResult) -> Mapping[str, Any] | None:
        """Keep what the client's model gives for the validation examples, where that is finite."""
        outputs = self._evaluator().outputs(result)
        return {"outputs": outputs} if finite(outputs) else None

    def observe(self, arm: Arm, results: Sequence[ClientResult], context: RoundContext) -> None:
        """Keep the new global model, and step every policy against its decision's derivative (equation 11)."""
        learner = self._learner(arm)
        if self.relaxation == "one-hot":
            learner.buffer.store(arm, self._key(learner))
        learner.credits = np.full(self._clients, np.nan)
        told = [result for result in results if result.received is not None]
        if not told or learner.decided is None:
            return
        slopes = self._slopes(told)
        if not np.isfinite(slopes).all():  # the loss of finite outputs is beyond the range of numbers
            return
        if self.relaxation == "concrete":
            gradient = self._relaxed_gradient(learner, told, slopes)
        else:
            gradient = self._policy_gradient(learner, told, slopes)
        learner.step(gradient, self.lr, self.optimizer)

    def _slopes(self, told: Sequence[ClientResult]) -> policy.Array:
        """Return the loss's derivative with respect to each model's weight in the ensemble, at one."""
        examples = np.array([result.train_examples for result in told], dtype=np.float64)
        shares = examples / (examples * [result.job.weight for result in told]).sum()
        outputs = [result.received["outputs"] for result in told if result.received is not None]
        weights = torch.from_numpy(shares * [result.job.weight for result in told])
        _, slopes = self._evaluator().derivative(outputs, weights, self._monitor)
        found: policy.Array = self._sign * shares * slopes.numpy()
        return found

    def _policy_gradient(self, learner: Learner, told: Sequence[ClientResult], slopes: policy.Array) -> policy.Array:
        slopes = policy.centred(slopes) if self.center else slopes
        every = np.zeros(self._clients)
        every[learner.cohort] = np.abs(slopes).max()  # who diverged has no output to take a derivative of
        every[[result.job.client for result in told]] = slopes
        learner.credits[learner.cohort] = -every[learner.cohort]
        decided = learner.decided if learner.decided is not None else np.zeros(0)
        return policy.policy_gradient(learner.logits, decided.astype(int), every)

    def _relaxed_gradient(self, learner: Learner, told: Sequence[ClientResult], slopes: policy.Array) -> policy.Array:
        sample = learner.decided if learner.decided is not None else learner.logits
        every = np.zeros(sample.shape)
        every[learner.cohort] = np.abs(slopes).max()
        for result, slope in zip(told, slopes, strict=True):
            every[result.job.client, result.job.index or 0] = slope
        if self.center:
            every[learner.cohort] -= every[learner.cohort].mean()
        learner.credits[learner.cohort] = -(every * sample).sum(axis=1)[learner.cohort]
        return policy.relaxed_gradient(learner.logits, sample, every, self.temperature)

    def evolve(self, arms: Sequence[Arm], context: RoundContext) -> None:
        """Let go of the global models of arms that the search has taken out."""
        live = {arm.index for arm in arms}
        for index, learner in self._learners.items():
            if index not in live:
                learner.buffer = self._empty_buffer()

    # ------------------------------------------------------------------ what users see

    def clients(self, arm: Arm) -> Sequence[Config]:
        """Return every client's most likely candidate."""
        learner = self._learners.get(arm.index)
        return [] if learner is None else [self.candidates_[int(place)] for place in learner.logits.argmax(axis=1)]

    def deployed(self, arm: Arm, client: int, seed: int) -> Config:
        """Return one client's most likely candidate."""
        return self.clients(arm)[client]

    @property
    def probabilities(self) -> Tensor:
        """The best arm's probabilities, a row a client."""
        if self.leader is None or self.leader not in self._learners:
            raise RuntimeError("FedTune has no probabilities yet: `trainer.fit` makes them for every arm.")
        return torch.from_numpy(policy.softmax(self._learners[self.leader].logits))

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The candidates, which all clients share."""
        return [dict(config) for config in self.candidates_]

    def figures(self, arm: Arm) -> Mapping[str, float]:
        """Return the mean entropy, and every client's most likely candidate, its probability and the last credit."""
        return self._learners[arm.index].figures()

    def configurations(self, arm: Arm) -> list[dict[str, Any]]:
        """Return a row for every client and candidate: the values, the probability, and which is the most likely."""
        learner = self._learners.get(arm.index)
        return [] if learner is None else learner.rows(self.candidates_)

    def identity(self) -> dict[str, Any]:
        """Return the space and the settings."""
        settings = ("lr", "optimizer", "credit", "buffer", "capacity", "relaxation", "temperature", "center", "loss")
        return {
            "name": "FedTune",
            "space": self.space.to_dict()["client"],
            **{name: getattr(self, name) for name in settings},
        }

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's logits, the optimizer's moments, the last credits and the global models."""
        return {"arms": {index: learner.state_dict() for index, learner in self._learners.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state back."""
        saved = state_dict["arms"].items()
        self._learners = {int(index): Learner.from_state(state, self._empty_buffer()) for index, state in saved}

    def _learner(self, arm: Arm) -> Learner:
        if arm.index not in self._learners:
            self._learners[arm.index] = Learner.begun(self._clients, len(self.candidates_), self._empty_buffer())
        return self._learners[arm.index]

    def _empty_buffer(self) -> ModelBuffer:
        return ModelBuffer(self.buffer, self.capacity)

    def _key(self, learner: Learner) -> tuple[int, ...]:
        return tuple(int(place) for place in learner.decided) if learner.decided is not None else ()

    def _evaluator(self) -> Ensemble:
        if self._ensemble is None:
            raise RuntimeError("FedTune learns what it evaluates on from FederatedLoop, before the first round.")
        return self._ensemble

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_ensemble": None}
