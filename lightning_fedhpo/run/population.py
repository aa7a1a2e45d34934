"""All arms of a run: those that live, the best of them, and how they are started and saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from lightning_fedhpo.algorithms.base import Algorithm
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.arms.scores import deciding, ranked
from lightning_fedhpo.arms.state_files import Spill
from lightning_fedhpo.client.module_state import ModuleState
from lightning_fedhpo.searches.base import Draft
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import Config


class Population(Sequence[Arm]):
    """The arms of a run, in the order in which they were started.

    Args:
        algorithm: Makes every arm's server.
        sign: 1 where small scores are better, -1 where large ones are.
        keeps_start: Whether arms are started after the first round, too, from the weights the run began with.
        spill: Where states of clients go that memory has no room for.
    """

    def __init__(self, algorithm: Algorithm, sign: float, keeps_start: bool, spill: Spill | None = None) -> None:
        self._algorithm, self._sign, self._keeps_start, self.spill = algorithm, sign, keeps_start, spill
        self._arms: list[Arm] = []
        self._start: tuple[list[Tensor], list[Tensor]] = [], []

    def __getitem__(self, place: Any) -> Any:
        """Return an arm by its number."""
        return self._arms[place]

    def __len__(self) -> int:
        return len(self._arms)

    def begin_from(self, state: ModuleState) -> None:
        """Take the module's weights as those that every arm starts from."""
        self._start = [w.detach().clone() for w in state.weights], [b.detach().clone() for b in state.buffers]

    def add(self, server: Config, client: Config, clients: Sequence[Config] = ()) -> Arm:
        """Start an arm."""
        arm = Arm(len(self._arms), self._algorithm, server, *self._start, client, clients, self.spill)
        self._arms.append(arm)
        return arm

    def start(self, drafts: Iterable[Draft], tuner: Tuner, seed: int) -> None:
        """Start the arms that a search wants."""
        for draft in drafts:
            server = {**draft.server, **tuner.server(len(self), seed)}
            self.add(server, draft.client, draft.clients).cohort = draft.cohort

    def retrain_best(self, client: Config, clients: Sequence[Config]) -> None:
        """Let all arms rest, and start one with the best one's hyperparameters from the initial weights."""
        best = self.best
        for arm in self.live:
            arm.finished = True
        self.add(best.server, client, clients).retrains = True

    @property
    def live(self) -> list[Arm]:
        """The arms that take part in rounds."""
        return [arm for arm in self._arms if arm.live]

    @property
    def retrained(self) -> Arm | None:
        """The arm that retrains the best configuration, once it exists."""
        return next((arm for arm in self._arms if arm.retrains), None)

    @property
    def best(self) -> Arm:
        """The arm whose model is the result: the retrained one, else the best of the search."""
        return self.retrained or self.best_searched

    @property
    def best_searched(self) -> Arm:
        """The arm with the best last score that was not taken out; the earlier one of equals."""
        arms = [arm for arm in self._arms if arm.eliminated_at is None and not arm.retrains]
        last = [self._sign * arm.scores[-1] if arm.scores else math.nan for arm in arms]
        return ranked(arms, deciding(last, [arm.scores for arm in arms], self._sign))[0]

    def state_dict(self) -> dict[str, Any]:
        """Return every arm's state, and the initial weights where they are needed again."""
        weights, buffers = self._start if self._keeps_start else ([], [])
        return {"arms": [arm.state_dict() for arm in self._arms], "weights": list(weights), "buffers": list(buffers)}

    def load_state_dict(self, saved: Mapping[str, Any], state: ModuleState) -> None:
        """Make the arms of a checkpoint of the same model, by an algorithm that keeps the same states."""
        self.begin_from(state)
        self._check_kept(saved)
        self._arms = []
        for kept in saved["arms"]:
            self.add(kept["server"], {}).load_state_dict(kept)
        if self._keeps_start:
            self._start = list(saved["weights"]), list(saved["buffers"])

    def _check_kept(self, saved: Mapping[str, Any]) -> None:
        """Refuse the states of another method, which ``on_difference="warn"`` lets come as far as this."""
        here, name = Arm(0, self._algorithm, {}, *self._start), type(self._algorithm).__name__
        lines: dict[str, None] = {}
        for arm in saved["arms"]:
            kept = arm.get("server_state", here.server_state)  # an arm that was taken out has none
            lines |= dict.fromkeys(f"{name} keeps {part!r} on the server" for part in here.server_state.keys() - kept)
            if (there := arm["server"]).keys() != here.server.keys():
                lines[f"the server has {', '.join(there)} there, {', '.join(here.server)} here"] = None
        if self._keeps_start and not saved["weights"]:
            lines["arms are started later, from initial weights that it does not have"] = None
        if lines:
            raise ValueError(
                f"the checkpoint does not have the states that this run needs: {'; '.join(lines)}. "
                "FederatedLoop(on_difference='warn') goes on where states are the same: resume with the checkpoint's "
                "own method, or start anew without it."
            )
