"""Only some clients can be had in a round: by probability, by day and night, or by a trace."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_fedhpo import seeding
from lightning_fedhpo.arguments import check_kinds, is_number, number
from lightning_fedhpo.participation.base import Draw, Participation


class AvailableClients(Participation):
    """Draw uniformly among the clients that are available in a round; all of them if they are fewer than the cohort.

    All arms find the same clients available. A round in which nobody is available is empty: models and scores stay.

    Args:
        probability: The probability that a client is available in a round: of all, or a list with one for each.
        day: The length of a day in rounds. A client's probability then goes from ``probability`` at its noon down to 0
            at its midnight, as a cosine; its time zone is drawn once.
        trace: A CSV file with the columns ``round`` and ``client``: who is available when, in place of a probability.
            After its last round it begins again.

    Example:
        >>> place = Draw(seed=0, round=3, arm=0, cohort=10, sizes=np.ones(1000))
        >>> len(AvailableClients(probability=0.5).draw(place)), len(AvailableClients(probability=0.0).draw(place))
        (10, 0)
    """

    def __init__(
        self,
        probability: float | Sequence[float] = 1.0,
        day: float | None = None,
        trace: str | Path | None = None,
    ) -> None:
        check_kinds(AvailableClients, locals())
        given: Any = [probability] if is_number(probability) else probability
        each = [number("a `probability`", one, low=0, high=1) for one in given]
        self.probability = each[0] if is_number(probability) else each
        self.day = None if day is None else number("day", day, above=0, why="it is a number of rounds")
        self.trace = None if trace is None else str(trace)
        if trace is not None and (day is not None or self.probability != 1.0):
            raise ValueError("a `trace` says who is available: leave out `probability` and `day`.")
        self._rounds = {} if trace is None else _read(Path(trace))

    def check(self, clients: int) -> None:
        """Refuse probabilities or a trace of another federation."""
        if isinstance(self.probability, list) and len(self.probability) != clients:
            raise ValueError(
                f"`probability` must have one value for each of the {clients} clients, got {len(self.probability)}."
            )
        wrong = sorted({one for row in self._rounds.values() for one in row if not 0 <= one < clients})
        if wrong:
            raise ValueError(
                f"the trace {self.trace} has clients that do not exist: {', '.join(map(str, wrong[:5]))}. The "
                f"federation has clients 0 to {clients - 1}."
            )

    def draw(self, place: Draw) -> NDArray[np.int64]:
        """Return the cohort."""
        able = self.available(place)
        return place.rng.choice(able, size=min(place.cohort, len(able)), replace=False)

    def available(self, place: Draw) -> NDArray[np.int64]:
        """Return the clients that are available in a round."""
        if self.trace is not None:
            span = max(self._rounds) + 1
            return np.array(self._rounds.get(place.round % span, []), dtype=np.int64)
        count, chance = len(place.sizes), np.asarray(self.probability)
        if self.day is not None:
            zone = seeding.rng(place.seed, seeding.AVAILABILITY).random(count)
            chance = chance * (1 + np.cos(2 * np.pi * (place.round / self.day + zone))) / 2
        drawn = seeding.rng(place.seed, seeding.AVAILABILITY, place.round + 1).random(count)
        return np.flatnonzero(drawn < chance)


def _read(path: Path) -> dict[int, list[int]]:
    """Read a trace: the clients of every round."""
    rounds: dict[int, dict[int, None]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
            for row in csv.DictReader(file, skipinitialspace=True):
                rounds.setdefault(int(row["round"]), {})[int(row["client"])] = None
    except OSError as error:
        raise ValueError(f"a `trace` must be a file that can be read, got {path}: {error.strerror}.") from error
    except (KeyError, TypeError, ValueError) as error:
        what = f"it has no column {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"a trace must be a CSV file with the columns `round` and `client`, whole numbers; {path} is none: {what}."
        ) from error
    if not rounds or min(rounds) < 0:
        raise ValueError(f"the trace {path} must have at least one row, with rounds from 0 on.")
    return {number: list(clients) for number, clients in rounds.items()}
