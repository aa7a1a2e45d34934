"""The command ``fedhpo-suggest``: the searches' proposals for whoever asks, a JSON line in and a JSON line out.

It speaks the protocol of :mod:`lightning_fedhpo.searches.external`, from the program's side.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lightning_fedhpo import seeding
from lightning_fedhpo.cli.errors import failed
from lightning_fedhpo.searches.optuna_study import ask, check_installed, random_arms
from lightning_fedhpo.searches.random import RandomSearch
from lightning_fedhpo.space.search_space import SearchSpace


class Proposer:
    """Reads lines and proposes values.

    Args:
        sampler: ``"random"``, ``"gp"`` or ``"tpe"``.

    Example:
        >>> proposer = Proposer("random")
        >>> space = {"client": {"lr": {"type": "float", "low": 0.1, "high": 0.1}}}
        >>> proposer.answer({"space": space})
        {'client': {'lr': 0.1}, 'server': {}}
    """

    def __init__(self, sampler: str) -> None:
        self._sampler = sampler
        self._space: SearchSpace | None = None
        self._tried: list[tuple[dict[str, Any], float]] = []

    def answer(self, line: object) -> dict[str, dict[str, Any]]:
        """Take a space, or a trial's values and score, and return the next trial's values."""
        if isinstance(line, Mapping) and "space" in line:
            self._space, self._tried = SearchSpace.from_dict(line["space"]), []
            if line.get("mode", "min") not in ("min", "max"):
                raise ValueError(f"`mode` must be 'min' or 'max', got {line['mode']!r}.")
            self._sign = -1.0 if line.get("mode") == "max" else 1.0
            self._seed, self._trials = int(line.get("seed", 0)), int(line.get("trials", 30))
        elif self._space is None:
            raise ValueError(f'the first line must have the space, such as {{"space": {{...}}}}, got {line!r}.')
        elif isinstance(line, Mapping) and {"values", "score"} <= line.keys():
            for part in ("client", "server"):
                self._space.check(line["values"].get(part, {}), part)
            score = line["score"]
            self._tried.append((_point(line["values"]), math.nan if score is None else self._sign * float(score)))
        else:
            raise ValueError(f'a line must have a trial\'s values and score, or a "space", got {line!r}.')
        return self._next(self._space)

    def _next(self, space: SearchSpace) -> dict[str, dict[str, Any]]:
        number = len(self._tried)
        if self._sampler == "random":
            draft = RandomSearch(space, budget=None, max_rounds=1).draft(number, self._seed)
            return {"client": dict(draft.client), "server": dict(draft.server)}
        dimensions = {f"{part}/{name}": one for part in ("server", "client") for name, one in space.part(part).items()}
        seed = seeding.key(self._seed, seeding.ASKED, arm=number)
        [point] = ask(dimensions, self._tried, 1, sampler=self._sampler, startup=random_arms(self._trials), seed=seed)
        return {part: {name: point[f"{part}/{name}"] for name in space.part(part)} for part in ("client", "server")}


def _point(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{part}/{name}": value for part, config in values.items() for name, value in config.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fedhpo-suggest``."""
    parser = argparse.ArgumentParser(
        prog="fedhpo-suggest",
        description="Read a space, then trials' scores, as JSON lines; write the next trial's values after each.",
    )
    parser.add_argument("--sampler", choices=["random", "gp", "tpe"], default="random", help="who proposes")
    given = parser.parse_args(arguments)
    proposer = Proposer(given.sampler)
    try:
        if given.sampler != "random":
            check_installed(f"fedhpo-suggest --sampler {given.sampler}")
        for line in filter(str.strip, sys.stdin):
            try:
                print(json.dumps(proposer.answer(json.loads(line))), flush=True)
            except json.JSONDecodeError as error:
                raise ValueError(f"a line must be one JSON object, got {line.rstrip()!r} ({error}).") from error
    except Exception as error:
        return failed("fedhpo-suggest", error, str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
