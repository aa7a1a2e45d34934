"""The tuned hyperparameters of a run, before the first round."""

from __future__ import annotations

from typing import Any

from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.searches.base import Search
from lightning_fedhpo.tuners.base import Tuner
from lightning_fedhpo.types import Config

DRAWN = 32
"""How many configurations are drawn, to see what clients may be given."""


class TuningPlan:
    """The hyperparameters that tuner and search set.

    Attributes:
        names: The client hyperparameters to bind.
        config: A configuration as clients may get it.
        drawn: Several of them.
        contrasts: For each name two values that ought to make a difference, None if there is only one value.
        edges: For each name the values by which it is checked, if it has several.
        server: For each server hyperparameter that is tuned two values that ought to make a difference.
    """

    def __init__(self, tuner: Tuner, search: Search, seed: int) -> None:
        drawn, space = search.client_names, search.space
        self.names = [*drawn, *tuner.client_names]
        self.drawn = [{**search.trial(seed + number), **tuner.trial(seed + number)} for number in range(DRAWN)]
        self.config: Config = self.drawn[0]
        self.contrasts = {n: space.ends(n) for n in drawn} | {n: tuner.contrast(n) for n in tuner.client_names}
        self.edges = {n: space.edges(n) for n in drawn} | {n: tuner.edges(n) for n in tuner.client_names}
        ends = {name: space.ends(name, "server") for name in search.server_names}
        if tuner.space is not None:
            ends |= {name: tuner.space.ends(name, "server") for name in tuner.server_names}
        self.server = {name: pair for name, pair in ends.items() if pair is not None}

    def values(self, name: str) -> list[Any]:
        """Return the extreme values of a hyperparameter, nothing if nobody sets it."""
        return [*([self.config[name]] if name in self.config else []), *(self.contrasts.get(name) or ())]

    @property
    def varied(self) -> list[Config]:
        """A configuration as drawn, and those with every hyperparameter at either end, but rates low in both.

        With high rates rounding errors grow to differences that prove nothing.
        """
        low = {name: min(pair) for name, pair in self.contrasts.items() if pair and group_of(name)[0] == "lr"}
        return [self.config, *({**end, **low} for end in self._ends)]

    @property
    def _ends(self) -> list[Config]:
        return [{**self.config, **{n: pair[at] for n, pair in self.contrasts.items() if pair}} for at in (1, 0)]

    def bases(self, name: str) -> list[Config]:
        """Return configurations in which a hyperparameter may show: as drawn, and with the others at either end."""
        return [self.config, *({**e, name: self.config[name]} if name in self.config else e for e in self._ends)]
