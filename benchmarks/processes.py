"""Sides in processes of their own, in turns: the bare loop, ours, two at once, two ranks, and other simulators."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cases import APART, APART_AUTO, BARE, LONGER, OWN, RANKS, RANKS_AUTO, SHARED
from benchmarks.others.environments import OTHERS
from benchmarks.papers import SHARED_SEARCHES
from benchmarks.rates import missing, without_paths
from benchmarks.ratios import Say, row
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ("OMP_", "MKL_", "KMP_", "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "TORCH_", "ATEN_")
"""Beginnings of environment variables that change how fast torch and the C library are."""

FEDERATED = ("-m", "benchmarks.child", "federated")
OURS = {
    BARE: ("-m", "benchmarks.child", "bare"),
    "sequential": (*FEDERATED, "--executor", "sequential"),
    "auto": (*FEDERATED, "--executor", "auto"),
    APART: (*FEDERATED, "--executor", "sequential"),
    APART_AUTO: (*FEDERATED, "--executor", "auto"),
    RANKS: (*FEDERATED, "--executor", "sequential", "--devices", "2"),
    RANKS_AUTO: (*FEDERATED, "--executor", "auto", "--devices", "2"),
}
SEARCH = ("-m", "benchmarks.child", "search", "--executor", "auto")
SEARCHING = {"auto": SEARCH, RANKS_AUTO: (*SEARCH, "--devices", "2")}
FEWEST = 3
"""Rounds of a turn, at least: simulators that poll for results are not to be judged by a single one."""
AGAINST = {
    APART: ("sequential",),
    RANKS: ("sequential", APART),
    APART_AUTO: ("auto",),
    RANKS_AUTO: ("auto", APART_AUTO),
}
"""What a side is compared with, where it is not the bare loop."""
AT_ONCE = {APART: 2, APART_AUTO: 2}
"""Sides that are so many runs at the same time, which share nothing: what the machine gives to several processes."""


class NoRateError(RuntimeError):
    """A child that printed no rate; the message is the end of what it said."""


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without anybody's settings of threads and memory, and with one thread.

    >>> environment({"MALLOC_ARENA_MAX": "1", "HOME": "/"})
    {'HOME': '/', 'OMP_NUM_THREADS': '1'}
    """
    kept = {name: value for name, value in given.items() if not name.startswith(SETTINGS)}
    return kept | {"OMP_NUM_THREADS": "1"}


def last_json(text: str) -> dict[str, Any] | None:
    r"""Return the last line that is a JSON object.

    >>> last_json('noise\n{"rate": 2.0}\nbye')
    {'rate': 2.0}
    """
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                found: dict[str, Any] = json.loads(line)
            except json.JSONDecodeError:
                continue
            return found
    return None


def child(python: str | Path, arguments: Sequence[str], timeout: float = 600) -> dict[str, Any]:
    """Run a side and return what it printed."""
    command = [str(python), *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(os.environ), capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoRateError(f"no rate within {timeout:.0f} s") from None
    found = last_json(done.stdout)
    if done.returncode or found is None or "rate" not in found:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NoRateError(without_paths(lines[-1] if lines else f"exit code {done.returncode}"))
    return found


def at_once(count: int, python: str | Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a side several times at the same time, and return what the first printed, with the sum of their rates."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(count) as pool:
        given = [*arguments, "--meet", folder, "--of", str(count)]
        found = list(pool.map(lambda _: child(python, given), range(count)))
    return found[0] | {"rate": sum(one["rate"] for one in found)}


def sides(others: Mapping[str, Path]) -> dict[str, tuple[str | Path, Sequence[str]]]:
    """Return every side's interpreter and arguments; ``others`` has the interpreters of other simulators."""
    found: dict[str, tuple[str | Path, Sequence[str]]] = {name: (sys.executable, args) for name, args in OURS.items()}
    for name, python in others.items():
        for workers in OTHERS[name].workers:
            title = f"{name}, {workers} worker{'s' if workers > 1 else ''}"
            found[title] = (python, ("-m", f"benchmarks.others.{name}", "--workers", str(workers)))
    return found


def compared(
    workload: str, turns: int, others: Mapping[str, Path], say: Say = print, rounds: int | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return a workload's lines, and the sides that could not be measured with the reason."""
    rounds = rounds or max(LONGER.get(workload, WORKLOADS[workload].rounds), FEWEST)
    return _in_turns(OWN, workload, sides(others), [workload, "--rounds", str(rounds)], turns, say)


def shared(
    search: str, turns: int, say: Say = print, rounds: int | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the lines of a search of the papers' space that two processes share."""
    given = [search, *(["--rounds", str(rounds)] if rounds else [])]
    wanted = {name: (sys.executable, arguments) for name, arguments in SEARCHING.items()}
    rows, skipped = _in_turns(SHARED, search, wanted, given, turns, say)
    return [line | {"title": SHARED_SEARCHES[search].title} for line in rows], skipped


def _in_turns(
    kind: str,
    case: str,
    wanted: dict[str, tuple[str | Path, Sequence[str]]],
    given: Sequence[str],
    turns: int,
    say: Say,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the lines of sides, each of which every turn starts once, in a new process."""
    taken: dict[str, list[float]] = {}
    said: dict[str, dict[str, Any]] = {}
    skipped = []
    for name in ("sequential", "auto"):
        if name in wanted and (why := missing(name)):
            skipped.append({"case": case, "side": name, "why": why})
            del wanted[name]
    for _ in range(turns):
        for name, (python, arguments) in list(wanted.items()):
            try:
                several, whole = AT_ONCE.get(name), [*arguments, *given]
                said[name] = at_once(several, python, whole) if several else child(python, whole)
            except NoRateError as error:
                skipped.append({"case": case, "side": name, "why": str(error)})
                say(f"  {case}: no {name}: {error}")
                del wanted[name]
                taken.pop(name, None)
                continue
            taken.setdefault(name, []).append(said[name]["rate"])
    rows = []
    for name, rates in taken.items():
        extra = {key: value for key, value in said[name].items() if key != "rate"}
        for against in AGAINST.get(name, (BARE,)):
            if against in taken and against != name:
                rows.append(row(kind, case, name, against, rates, taken[against]) | extra)
    return rows, skipped
