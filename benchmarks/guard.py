"""The guard: short turns of the bare loop and ours in one process, against the ratios last recorded.

    python -m benchmarks.guard             # fails below 0.8 of a ratio that this machine has recorded
    python -m benchmarks.guard --record    # writes this machine's ratios into benchmarks/recorded.json

The file has a record of every kind of machine that was recorded on, and its figures only rise. Noise of the machine
hits both sides of a ratio. What falls short is measured once more, with twice the turns, before it counts.
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


def record_of(this: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the record of a kind of machine, or None.

    >>> here = {"processor": "a", "cores": 2, "system": "Linux"}
    >>> record_of(here, [{"machine": here, "ratios": {"mlp sequential": 0.9}}])["ratios"]
    {'mlp sequential': 0.9}
    """
    return next((one for one in records if same(this, one["machine"])), None)


def raised(old: Mapping[str, float], new: Mapping[str, float]) -> Ratios:
    """Return the new ratios, but where the old one is larger: figures only rise.

    >>> raised({"mlp sequential": 0.9, "gone": 1.0}, {"mlp sequential": 0.8412, "lstm sequential": 1.0})
    {'mlp sequential': 0.9, 'lstm sequential': 1.0}
    """
    return {name: max(round(ratio, 3), old.get(name, 0.0)) for name, ratio in new.items()}


def record(turns: int, say: Say = print) -> None:
    """Write down the ratios of this machine, of several runs the least: neighbours weigh on one and not on another."""
    runs = [measured(CASES, turns, say) for _ in range(RUNS)]
    least = {name: min(found[name] for found in runs) for name in runs[0]}
    records = json.loads(RECORDED.read_text())
    before = record_of(machine(), records)
    ratios = raised(before["ratios"] if before else {}, least)
    kept = [one for one in records if one is not before]
    text = json.dumps([*kept, {"machine": machine(), "turns": turns, "ratios": ratios}], indent=1)
    RECORDED.write_text(text + "\n")
    for name, ratio in ratios.items():
        say(f"{name:<40}{ratio:>7.2f}   measured {least[name]:.2f}")


def check(records: Sequence[Mapping[str, Any]], turns: int, say: Say = print) -> int:
    """Measure, compare with this machine's record, and return the exit code; without one, show what is measured."""
    now = machine()
    mine = record_of(now, records)
    if mine is None:
        others = "; ".join(described(one["machine"]) for one in records)
        say(f"nothing is recorded of this machine, {described(now)}, so nothing can fail. There are: {others}")
    else:
        say(f"recorded: {described(mine['machine'])}")
    recorded = mine["ratios"] if mine else {}
    found = measured(CASES, turns, say)
    short = fallen(found, recorded)
    if short:
        say(f"short at first, measured once more: {', '.join(short)}")
        searches = [name for name in SEARCHES if any(f"{name} {side}," in one for one in short for side in SIDES)]
        found |= measured(again(short), 2 * turns, say, searches)
        short = fallen(found, recorded)
    for name, ratio in found.items():
        before = recorded.get(name)
        say(f"{name:<40}{ratio:>7.2f}   recorded {'nothing' if before is None else format(before, '.2f')}")
    for name, why in short.items():
        say(f"FAILED {name}: {why}")
    return int(bool(short))


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
    return check(json.loads(RECORDED.read_text()), arguments.turns)


if __name__ == "__main__":
    sys.exit(main())
