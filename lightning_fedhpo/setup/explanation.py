"""What is known of a run before it trains, as text and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from textwrap import wrap
from typing import Any

from lightning_fedhpo.run import result_text
from lightning_fedhpo.run.result_text import value_text

_SCORED = {
    "personalized": "of clients' models after their own training, on their validation examples",
    "global": "of the model that clients begin with, on their validation examples",
    "server": "of each new global model, on the server's own examples",
}
_WORDS = {
    "rounds": "rounds of single arms",
    "client_updates": "client updates",
    "local_steps": "local steps",
    "bytes_up": "up",
    "bytes_down": "down",
}


WIDTH = 108
"""Characters of a line of text, to the right of its word."""


@dataclass(frozen=True, repr=False)
class Explanation:
    """All that is known of a run before it trains. It prints as text.

    Attributes:
        parts: Algorithm, search and tuner by name, the cohort and the federation's size.
        names: One dict a hyperparameter that can be tuned: ``part``, ``name``, ``value`` (the present one),
            ``where`` it goes, the ``hparams`` it equals, whether it is ``tuned``, and its ``space``.
        score: The monitored value, its mode, and which model is scored.
        schedules: One dict a learning-rate schedule: how many steps it ``needs``, and ``has`` at most.
        executor: What runs the jobs and why (``choice``), all that is known ``against`` running them side by side, the
            floating-point ``operations`` of a step, and the ``jobs`` of a round.
        arms: How many arms the search has in all.
        rungs: One dict for consecutive rounds with as many arms: ``arms``, ``rounds``.
        ledger: What the whole search costs, as the run's ledger counts it: ``low``, ``expected``, ``high`` of each.
        retraining: The same for rounds of ``retrain``; None where there are none.
        tuned_lengths: The bounds of what is tuned and makes jobs longer or shorter.
        memory: How many ``arms`` live at once, the ``bytes`` of their tensors, and the most that their clients' states
            take (``client_states``).
        seconds: How long it takes: ``low``, ``expected``, ``high``.
        tests: How many tests of clients are made in the run, of how many ``clients``, and the ``seconds`` of each.
        trainer: The Trainer's settings that the run honours, and by how many processes it is shared.
        warnings: What `fit` would warn of.
    """

    parts: Mapping[str, Any]
    names: Sequence[Mapping[str, Any]]
    score: Mapping[str, Any]
    schedules: Sequence[Mapping[str, Any]]
    executor: Mapping[str, Any]
    arms: int
    rungs: Sequence[Mapping[str, int]]
    ledger: Mapping[str, Mapping[str, int]]
    retraining: Mapping[str, Mapping[str, int]] | None
    tuned_lengths: Mapping[str, Sequence[int]]
    memory: Mapping[str, int]
    seconds: Mapping[str, float]
    tests: Mapping[str, Any]
    trainer: Mapping[str, Any]
    warnings: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, which JSON can hold."""
        return asdict(self)

    def __repr__(self) -> str:
        lines = ((word, wrap(line, WIDTH, subsequent_indent="  ")) for word, line in self._rows())
        parts = (row for word, several in lines for row in _listed(word, several))
        return result_text.text(self._title, parts)

    def _repr_html_(self) -> str:
        return result_text.html(self._rows())

    @property
    def _title(self) -> str:
        parts = self.parts
        methods = " in ".join(str(parts[kind]) for kind in ("tuner", "search") if parts[kind]) or "no tuner"
        return f"{methods} with {parts['algorithm']}: {parts['cohort']} of {parts['federation']:,} clients a round"

    def _rows(self) -> Iterator[tuple[str, str]]:
        score = self.score
        scored = f"{score['monitor']} ({score['mode']}), {_SCORED[score['target']]}" if score["monitor"] else "none"
        yield "score", scored
        yield from _listed("tuned", [_name_text(row) for row in self.names if row["tuned"]] or ["nothing"])
        yield from _listed("can be", [_name_text(row) for row in self.names if not row["tuned"]])
        yield "", "and any attribute of the module by its path, such as hparams.<name>"
        yield from _listed("schedules", [_schedule_text(row) for row in self.schedules])
        yield from _listed("executor", self._executor())
        rungs = ", then ".join(f"{rung['arms']} for {_counted(rung['rounds'], 'round')}" for rung in self.rungs)
        yield "arms", f"{self.arms:,} in all: {rungs}"
        yield from _listed("costs", self._costs())
        arms, size = self.memory["arms"], self.memory["bytes"]
        kept = self.memory["client_states"]
        states = f", and up to {_bytes(kept)} of clients' states; more lies in files" if kept else ""
        yield "memory", f"{_bytes(size)} for the tensors of {_counted(arms, 'arm')} at once{states}"
        yield from _listed("time", self._time())
        yield "Trainer", ", ".join(f"{name} {value}" for name, value in self.trainer.items() if value is not None)
        yield from _listed("warnings", self.warnings)

    def _executor(self) -> list[str]:
        executor = self.executor
        against = [f"against side by side: {reason}" for reason in executor["against"]]
        counted = f"a step has {executor['operations'] / 1e6:.3g} million operations, a round {executor['jobs']} jobs"
        return [executor["choice"], counted, *against]

    def _costs(self) -> Iterator[str]:
        for name in _WORDS:
            counts, show = self.ledger[name], _bytes if name.startswith("bytes") else "{:,}".format
            yield f"{show(counts['expected'])} {_WORDS[name]}{self._range(counts, show)}"
        if self.retraining is not None:
            rounds, steps = (self.retraining[name]["expected"] for name in ("rounds", "local_steps"))
            yield f"and {rounds:,} rounds of retraining with {steps:,} local steps"

    def _range(self, counts: Mapping[str, int], show: Any) -> str:
        if counts["low"] == counts["high"]:
            return ""
        why = ", ".join(f"{name} {low} to {high}" for name, (low, high) in self.tuned_lengths.items())
        return f", from {show(counts['low'])} to {show(counts['high'])}" + (f" ({why})" if why else "")

    def _time(self) -> Iterator[str]:
        low, expected, high = (_duration(self.seconds[case]) for case in ("low", "expected", "high"))
        shared = f"; {processes} share it" if (processes := self.trainer["processes"]) > 1 else ""
        yield f"about {expected}, from {low} to {high}, by one process on this machine as it is now{shared}"
        if self.tests["clients"]:
            each = f"a test of all {self.tests['clients']:,} clients takes about {_duration(self.tests['seconds'])}"
            yield each + (f", {self.tests['in_run']} of them are in it" if self.tests["in_run"] else " more")


def _listed(word: str, lines: Any) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield "" if number else word, line


def _name_text(row: Mapping[str, Any]) -> str:
    name = f"{row['part']}.{row['name']}"
    same = f" = {', '.join(row['hparams'])}" if row["hparams"] else ""
    space = f", from {row['space']}" if row["space"] else ""
    return f"{name:<21} {value_text(row['value']):<8} {row['where']}{same}{space}"


def _schedule_text(row: Mapping[str, Any]) -> str:
    what = "an arm's rounds are" if row["by"] == "rounds" else "a job has at most"
    return f"{row['schedule']} needs {row['needs']} steps, {what} {row['has']}"


def _bytes(size: int) -> str:
    """Return a size in a unit that suits it.

    >>> _bytes(512), _bytes(24_400), _bytes(3_000_000)
    ('512 B', '24.4 kB', '3 MB')
    """
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.3g} {unit}"
    return f"{size} B"


def _duration(seconds: float) -> str:
    """Return a time.

    >>> _duration(0.042), _duration(42.4), _duration(75)
    ('0.042 s', '42 s', '0:01:15')
    """
    return f"{seconds:.2g} s" if seconds < 59.5 else str(timedelta(seconds=round(seconds)))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
