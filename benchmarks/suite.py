"""The suite, one command: ratios over a loop written by hand, other simulators on request, scaling curves.

    python -m benchmarks.suite                                     # everything but other simulators
    python -m benchmarks.suite --sections papers --workloads mlp   # a part of it
    python -m benchmarks.suite --sections own --with flower pfl    # beside Flower and pfl, installed on their own
    python -m benchmarks.suite --sections --page                   # nothing measured: docs/speed.md from the record
    python -m benchmarks.suite --device cuda                       # papers' space and one setting for all, on a GPU

It prints a table and writes benchmarks/results/speed.json, case by case. A section that is measured replaces the one
of that name in the JSON file; the others stay, each with its own date, machine and commit. ``--page`` writes the tables
into docs/speed.md, ``--record`` what the guard compares with. Another device than the CPU has a
JSON file of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import device, guard, processes, ratios, scaling, tables
from benchmarks.cases import BARE, BEST_BARE, CASES, CORES, OWN, PAPERS_SPACE, SAME, SHARED
from benchmarks.machine import at_least_one, commit, machine, quiet
from benchmarks.others.environments import OTHERS, made
from benchmarks.papers import SEARCHES, SHARED_SEARCHES, compared
from benchmarks.rates import EXECUTORS, missing
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
SECTIONS = {
    "papers": PAPERS_SPACE,
    "same": SAME,
    "cores": CORES,
    "own": OWN,
    "processes": SHARED,
    "scaling": tables.SCALING,
}
ALL = list(dict.fromkeys((*SEARCHES, *WORKLOADS)))
NAME = "speed.json"
ON_DEVICES = ("papers", "same")
"""Sections that make sense on another device than the CPU: the others are about processes and memory."""


Keep = Callable[[dict[str, Any]], None]
"""Writes down what has been measured of a section so far."""


def several(
    names: Sequence[str],
    measure: Callable[[str], tuple[list[Any], list[Any]]],
    keep: Keep,
    gaps: Sequence[dict[str, str]] = (),
) -> None:
    """Measure one after another and keep all lines and all gaps."""
    found: dict[str, Any] = {"rows": [], "skipped": list(gaps)}
    for gap in gaps:
        print(f"  no {gap['side']}: {gap['why']}", flush=True)
    for name in names:
        rows, skipped = measure(name)
        found["rows"] += rows
        found["skipped"] += skipped
        keep(found)
        for row in rows:
            side = row["side"] if row["against"] in (BARE, BEST_BARE) else f"{row['side']} / {row['against']}"
            side += f", {row['window']}" if "window" in row else ""
            print(f"  {name:<46}{side:<32}{row['rate']:>9.1f}/s{row['other']:>9.1f}/s   {tables.cell(row)}", flush=True)


def section(name: str, arguments: argparse.Namespace, keep: Keep) -> None:
    """Measure one section."""
    turns = turns_of(name, arguments.turns)
    if name == "scaling":
        curves = {curve: scaling.CURVES[curve] for curve in arguments.curves}
        keep(scaling.measured(turns, curves=curves, updates=scaling.UPDATES))
    elif name == "papers":
        searches = [search for search in SEARCHES if search in arguments.workloads]
        several(searches, lambda search: (compared(search, turns), []), keep)
    elif name in ("same", "cores"):
        wanted = [case for case in CASES if case.workload in arguments.workloads]
        cases = {case.name: case for case in wanted if name == "same" or case.name == case.workload}
        gaps = [{"case": "all", "side": name, "why": why} for name in EXECUTORS if (why := missing(name))]
        several(list(cases), lambda case: ratios.compared(cases[case], turns, kind=SECTIONS[name]), keep, gaps)
    elif name == "processes":
        searches = [search for search in SHARED_SEARCHES if search in arguments.workloads]
        several(searches, lambda search: processes.shared(search, turns), keep)
    else:
        others, gaps = {}, []
        for other in arguments.others:
            try:
                others[other] = made(other)
            except RuntimeError as error:
                gaps.append({"case": "all", "side": other, "why": str(error)})
        workloads = [name for name in WORKLOADS if name in arguments.workloads]
        several(workloads, lambda workload: processes.compared(workload, turns, others), keep, gaps)


def turns_of(name: str, asked: int) -> int:
    """Return a section's turns: those of whole runs and curves, and that start processes, are long, and take fewer.

    >>> turns_of("same", 7), turns_of("own", 7), turns_of("scaling", 3), turns_of("papers", 7)
    (7, 5, 3, 3)
    """
    return min(asked, {"same": asked, "cores": asked, "papers": 3, "processes": 3}.get(name, 5))


def command(given: Sequence[str]) -> str:
    """Return the command as the page shows it, without the folder that the results went to.

    >>> command(["--sections", "same", "--out", "somewhere"])
    'python -m benchmarks.suite --sections same'
    """
    words = list(given)
    while "--out" in words:
        place = words.index("--out")
        del words[place : place + 2]
    return " ".join(["python -m benchmarks.suite", *words])


def main(given: Sequence[str] | None = None) -> int:
    """Measure what is asked for and write it down."""
    given = sys.argv[1:] if given is None else given
    arguments = parsed(given)
    quiet()
    device.use(arguments.device)
    on_cpu = arguments.device == "cpu"
    path = arguments.out / (NAME if on_cpu else f"speed-{arguments.device}.json")
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if arguments.sections and hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > 0.5:
        print(f"other programs are at work (load {load:.1f}): ratios are noisy, rates are too low", flush=True)
    place = {} if on_cpu else {"device": device.title()}
    for name in arguments.sections:
        print(SECTIONS[name], flush=True)
        about = {"command": command(given), "turns": turns_of(name, arguments.turns), "commit": commit()}
        about["machine"] = machine() | place

        def keep(found: dict[str, Any], name: str = name, about: dict[str, Any] = about) -> None:
            record[SECTIONS[name]] = {**about, **found}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record, indent=1) + "\n")

        section(name, arguments, keep)
    print(tables.goals(record))
    if arguments.page:
        text = (DOCS / "speed.md").read_text()
        (DOCS / "speed.md").write_text(tables.filled(text, "speed", tables.page(record)))
    if arguments.record:
        guard.record(guard.TURNS)
    return 0


def parsed(given: Sequence[str]) -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, help="all by default")
    parser.add_argument("--workloads", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--curves", nargs="+", choices=scaling.CURVES, default=list(scaling.CURVES))
    parser.add_argument(
        "--turns",
        type=at_least_one,
        default=7,
        help="turns of every comparison (papers, processes: at most 3; own, scaling: 5)",
    )
    parser.add_argument("--with", nargs="+", choices=OTHERS, default=[], dest="others", help="other simulators")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write the tables into docs/speed.md")
    parser.add_argument("--record", action="store_true", help="write benchmarks/recorded.json for the guard")
    parser.add_argument("--device", type=device.known, default="cpu", help="cpu, cuda or mps")
    arguments = parser.parse_args(given)
    if arguments.sections is None:
        arguments.sections = [name for name in SECTIONS if arguments.device == "cpu" or name in ON_DEVICES]
    others = [name for name in arguments.sections if name not in ON_DEVICES]
    if arguments.device != "cpu" and (others or arguments.page or arguments.record):
        parser.error(f"{arguments.device} has the sections {', '.join(ON_DEVICES)}; docs and guard are a CPU's")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
