"""A search whose arms another program proposes, one JSON line for each: an agent, or another tool.

The program reads one line and writes one, again and again. The first line that it reads is the space, every later one
a trial's score::

    {"space": {"client": {"lr": {...}}, "server": {}}, "mode": "min", "trials": 10, "rounds": 50, "seed": 0}
    {"trial": 0, "values": {"client": {"lr": 0.05}, "server": {}}, "score": 0.71, "rounds": 50}

Each line that it writes has the next trial's values: ``{"client": {"lr": 0.02}, "server": {}}``. A score that is not
finite comes as ``null``. Its input ends with the run.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from lightning_fedhpo import processes
from lightning_fedhpo.arguments import check_kinds, shown
from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.searches.asked import AskedSearch
from lightning_fedhpo.searches.base import Draft
from lightning_fedhpo.space.search_space import SearchSpace, SpacePart
from lightning_fedhpo.types import RoundContext, plain

_PARTS: tuple[SpacePart, ...] = ("client", "server")
PATIENCE = 5.0
"""Seconds that a program has to end by itself once its input has ended."""


def _path_of(program: str) -> str | None:
    """Return where a program is, also if it lies beside Python and not on the PATH, as in an environment."""
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))


class ExternalSearch(AskedSearch):
    """Ask another program for arms, train each of them for the same number of rounds, and tell it their last scores.

    The budget is counted as for every search, so the program competes at equal cost. A resumed run starts it anew and
    tells it all earlier trials; what it answers to these is not used. ``fedhpo-suggest`` is such a program.

    Args:
        space: The hyperparameters that are asked for every arm.
        command: The program and its arguments, as a list or as one text.
        budget: Rounds of single arms in all.
        max_rounds: Rounds of each arm.

    Example:
        >>> from lightning_fedhpo import Float, SearchSpace
        >>> space = SearchSpace(client={"lr": Float(0.001, 1.0, log=True)})
        >>> search = ExternalSearch(space, "fedhpo-suggest --sampler random", budget=100, max_rounds=10)
        >>> search.arms, search.rounds
        (10, 100)
    """

    settings = ("max_rounds", "command")

    def __init__(
        self, space: SearchSpace, command: str | Sequence[str], budget: int = 300, max_rounds: int = 10
    ) -> None:
        check_kinds(ExternalSearch, locals())
        super().__init__(space, budget, max_rounds)
        self.command = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
        if not self.command or _path_of(self.command[0]) is None:
            raise ValueError(
                f"`command` must begin with a program that can be started, got {shown(command)}: give its path, or "
                "install it."
            )
        self._program: subprocess.Popen[str] | None = None
        self._told = 0

    def ask(self, arms: Sequence[Arm], count: int, context: RoundContext) -> list[Draft]:
        """Tell the program what it has not heard yet, and take its last answer."""
        with processes.fail_together("the search") as answers:  # it may answer differently each time: take the first's
            answers.own = self._answer(arms, context) if processes.is_first() else None
        values = answers.all[0]
        return [Draft(values["server"], values["client"])]

    def _answer(self, arms: Sequence[Arm], context: RoundContext) -> dict[str, Any]:
        if self._program is None or self._told > len(arms):
            self._close()
            words = [str(_path_of(self.command[0])), *self.command[1:]]
            self._program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = ""
        for line in list(self._lines(arms, context))[self._told :]:
            answer = self._exchange(line)
        return self._values(answer)

    def _lines(self, arms: Sequence[Arm], context: RoundContext) -> Iterator[dict[str, Any]]:
        mode = "min" if context.sign > 0 else "max"
        about = {"mode": mode, "trials": self.arms, "rounds": self.max_rounds, "seed": context.seed}
        yield {"space": self._asked().to_dict(), **about}
        for arm in arms:
            score = arm.scores[-1] if math.isfinite(arm.scores[-1]) else None
            values = {
                "client": {name: plain(arm.client)[name] for name in self.client_names},
                "server": {name: plain(arm.server)[name] for name in self.server_names},
            }
            yield {"trial": arm.index, "values": values, "score": score, "rounds": arm.rounds}

    def _asked(self) -> SearchSpace:
        client = {name: self.space.client[name] for name in self.client_names}
        return SearchSpace(client=client, server={name: self.space.server[name] for name in self.server_names})

    def _exchange(self, line: dict[str, Any]) -> str:
        assert self._program is not None and self._program.stdin is not None and self._program.stdout is not None
        try:
            self._program.stdin.write(json.dumps(line) + "\n")
            self._program.stdin.flush()
            answer = self._program.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ValueError(
                f"the program {shlex.join(self.command)!r} must write a line for every line it reads; it ended with "
                f"code {self._program.wait()} instead. What it said of that is above. It was told: {json.dumps(line)}"
            )
        self._told += 1
        return answer

    def _values(self, answer: str) -> dict[str, Any]:
        """Return the values of an answer, or raise with what is wrong about it."""
        rule = f"the program {shlex.join(self.command)!r} must answer with a trial's values, such as"
        example = json.dumps({"client": {name: "..." for name in self.client_names}, "server": {}})
        try:
            values = json.loads(answer)
        except json.JSONDecodeError as error:
            raise ValueError(f"{rule} {example} on one line, got {shown(answer.rstrip())}.") from error
        if not isinstance(values, dict) or not all(isinstance(values.get(part, {}), dict) for part in _PARTS):
            raise ValueError(f"{rule} {example}, got {shown(answer.rstrip())}.")
        found: dict[str, Any] = {part: values.get(part, {}) for part in _PARTS}
        try:
            for part in _PARTS:
                self._asked().check(found[part], part)
        except ValueError as error:
            raise ValueError(f"the program {shlex.join(self.command)!r} must stay in the space: {error}") from error
        return found

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End the program's input."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the program's input."""
        self._close()

    def _close(self) -> None:
        if self._program is not None:
            with self._program as program:
                program.stdin.close()  # type: ignore[union-attr]  # a pipe
                try:
                    program.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    program.kill()
        self._program, self._told = None, 0
