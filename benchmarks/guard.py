"""The guard: short turns of the bare loop and ours in one process, against the ratios last recorded.

    python -m benchmarks.guard             # fails below 0.8 of a ratio that this machine has recorded
    python -m benchmarks.guard --record    # writes benchmarks/recorded.json

Noise of the machine hits both sides of a ratio. What falls short is measured once more, with twice the turns, before
it counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import papers
from benchmarks.cases import BARE, ONE_BY_ONE, WHOLE, Case
from benchmarks.machine import at_least_one, described, machine, quiet, same
from benchmarks.ratios import Say, compared

RECORDED = Path(__file__).with_name("recorded.json")
SHARE = 0.8
TURNS = 5
RUNS = 3
CASES = [
    Case("mlp", rounds=10, executors=("sequential", "vectorized")),
    Case("lenet", rounds=2, executors=("sequential",)),
    Case("femnist", cohort=3, rounds=1, executors=("sequential",)),
    Case("lstm", cohort=3, rounds=1, executors=("sequential",)),
    Case("logistic", rounds=6, executors=("sequential", "vectorized")),
]
SEARCHES = {"logistic": 100, "mlp": 60, "lenet": 12, "encoder": 12, "cifar": 6, "resnet": 6}
"""Rounds of the papers' space; what is recorded are lanes, and `auto`, over one job after another, in whole runs."""
SIDES = (ONE_BY_ONE, "lanes", "auto")

Ratios = dict[str, float]


def measured(cases: Sequence[Case], turns: int, say: Say, searches: Iterable[str] = SEARCHES) -> Ratios:
    """Return the median ratio of every case and executor that can be had, and of every search, by name."""
    found: Ratios = {}
    for name in searches:
        for row in papers.compared(name, max(1, turns // 4), SIDES, SEARCHES[name], [WHOLE]):  # they are long
            if row["against"] == ONE_BY_ONE:
                found[f"{name} {row['side']}, papers' space"] = row["ratio"]
    for case in cases:
        rows, _ = compared(case, turns, say)
        for row in rows:
            if row["against"] == BARE:
                found[f"{case.workload} {row['side']}"] = row["ratio"]
    return found


def fallen(found: Mapping[str, float], recorded: Mapping[str, float], share: float = SHARE) -> dict[str, str]:
    """Return what is below a share of its record, or was not measured although it is recorded, and by how much.

    >>> fallen({"mlp sequential": 0.7}, {"mlp sequential": 1.0, "lstm sequential": 1.0})
    {'mlp sequential': '0.70 is 0.70 of the recorded 1.00, and below 0.80 of it',
     'lstm sequential': 'not measured, recorded 1.00'}
    """
    short = {}
    for name, ratio in recorded.items():
        if name not in found:
            short[name] = f"not measured, recorded {ratio:.2f}"
        elif found[name] < share * ratio:
            part = found[name] / ratio
            short[name] = f"{found[name]:.2f} is {part:.2f} of the recorded {ratio:.2f}, and below {share:.2f} of it"
    return short


def again(short: Mapping[str, str], cases: Sequence[Case] = CASES) -> list[Case]:
    """Return the cases to measure once more, with the executors that fell short.

    >>> [(case.workload, case.executors) for case in again({"mlp vectorized": "", "lstm sequential": ""})]
    [('mlp', ('vectorized',)), ('lstm', ('sequential',))]
    """
    wanted = [
        replace(case, executors=tuple(name for name in case.executors if f"{case.workload} {name}" in short))
        for case in cases
    ]
    return [case for case in wanted if case.executors]


def record(turns: int, say: Say = print) -> None:
    """Write down the ratios of this machine, of several runs the least: neighbours weigh on one and not on another."""
    runs = [measured(CASES, turns, say) for _ in range(RUNS)]
    rounded = {name: round(min(found[name] for found in runs), 3) for name in runs[0]}
    RECORDED.write_text(json.dumps({"machine": machine(), "turns": turns, "ratios": rounded}, indent=1) + "\n")
    for name, ratio in rounded.items():
        say(f"{name:<40}{ratio:>7.2f}")


def check(recorded: Mapping[str, Any], turns: int, say: Say = print) -> int:
    """Measure, compare, and return the exit code."""
    now = machine()
    say(f"recorded: {described(recorded['machine'])}")
    known = same(now, recorded["machine"])
    if not known:
        say(f"now:      {described(now)} (another machine: what falls short is shown, and no failure)")
    found = measured(CASES, turns, say)
    short = fallen(found, recorded["ratios"])
    if short:
        say(f"short at first, measured once more: {', '.join(short)}")
        searches = [name for name in SEARCHES if any(f"{name} {side}," in one for one in short for side in SIDES)]
        found |= measured(again(short), 2 * turns, say, searches)
        short = fallen(found, recorded["ratios"])
    for name, ratio in found.items():
        before = recorded["ratios"].get(name)
        say(f"{name:<40}{ratio:>7.2f}   recorded {'nothing' if before is None else format(before, '.2f')}")
    for name, why in short.items():
        say(f"{'FAILED' if known else 'short'} {name}: {why}")
    return int(known and bool(short))


def main() -> int:
    """Run the guard, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=at_least_one, default=TURNS)
    parser.add_argument("--record", action="store_true", help="write the ratios down instead of checking them")
    arguments = parser.parse_args()
    quiet()
    if arguments.record:
        record(arguments.turns)
        return 0
    if not RECORDED.exists():
        parser.error("nothing is recorded: run it with --record once.")
    return check(json.loads(RECORDED.read_text()), arguments.turns)


if __name__ == "__main__":
    sys.exit(main())
