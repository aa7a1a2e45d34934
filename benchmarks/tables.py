"""The record as tables: in the terminal, and between two markers of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.cases import BARE, BEST, BEST_BARE, CORES, ONE_BY_ONE, OWN, PAPERS_SPACE, SAME, SHARED
from benchmarks.goals import GOALS, Goal
from benchmarks.machine import described
from benchmarks.others.environments import OTHERS
from benchmarks.papers import SEARCHES
from benchmarks.scaling import FLAT, TITLES
from benchmarks.workloads import VALIDATION, WORKLOADS

Record = Mapping[str, Any]
SCALING = "scaling"
NOTES = {
    PAPERS_SPACE: (
        "What users run: FedEx gives every client rates, momentum, weight decay, a batch size of 8 to 128 and 1 to 5 "
        "epochs of its own, over the papers' whole space. All sides took turns in one process with one thread. Ratios "
        "are over one job after another, in the last column over the side that took less for the whole run. Early is "
        "from the fourth round to a third of the run, late its last third; whole counts what comes before the first "
        "round, too, such as tracing and compiling, which longer runs have no more of. Steps with convolutions of "
        "images are never compiled."
    ),
    SAME: (
        "The bare loop and every executor took turns in one process with one thread, on the same jobs: the same "
        "clients, batches in the same order, hyperparameters and validation examples. Bare loop: one model, torch's "
        "fused SGD, tensors indexed by a permutation, FedAvg in place. Ours is timed from the end of its first round "
        "to the end of its last, the bare loop on the jobs of the same rounds. Best by hand is the better of "
        "sequential and vectorized: compiling pays in longer runs than these."
    ),
    CORES: (
        "The same where torch may use all cores: executors compute on as many threads, the bare loop takes a turn on "
        "one thread and a turn on all, and ratios are over the one that is faster by its median."
    ),
    OWN: (
        "Every side in new processes, in turns, with no setting of memory or threads in the environment but one thread "
        "a process. Bare loop: as above, in a process that does not import our package, after a round that warms it "
        'up; all others without their first round. Two ranks: `Trainer(strategy="ddp", devices=2)` on CPU, over one '
        "process with the same executor. Two apart: two runs at the same time that share nothing, whose rates are "
        "added up: what the machine gives to two processes. They wait for each other when their first round is over."
    ),
    SHARED: (
        "Searches of the papers' space by `auto`, in their last third: every side in new processes, in turns, with one "
        'thread a process. Two ranks: `Trainer(strategy="ddp", devices=2)` on CPU, over one process.'
    ),
    SCALING: (
        "Microseconds per client update, and in brackets over the first point of the same turn. Logistic regression "
        "8-4 on clients of 8 examples, batches of 4, one epoch: two steps a client, so that what grows would show. "
        "Ten clients a round unless they are what varies; the first round is left out."
    ),
}


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    rows = [list(head), *(list(line) for line in lines)]
    text = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([text[0], "|" + "---|" * len(head), *text[1:]])


def number(value: float) -> str:
    """Return a figure with three digits.

    >>> number(1234.5), number(53.21), number(5.123), number(0.5)
    ('1,234', '53.2', '5.12', '0.50')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def title(case: str) -> str:
    """Return what a case is called in a table.

    >>> title("logistic, cohort 100")
    'logistic regression 60-10, cohort 100'
    """
    if case in SEARCHES:
        return SEARCHES[case].title
    name, comma, rest = case.partition(",")
    return f"{WORKLOADS[name].title if name in WORKLOADS else name}{comma}{rest}"


def ratios(section: Record, bases: Sequence[str] = (BARE, BEST_BARE), head: str = "bare loop, updates/s") -> str:
    """Return a section's table: a line per case, a column per side; ``head`` is over the rates of ``bases``."""
    rows = section["rows"]
    columns = list(dict.fromkeys((row["side"], row["against"]) for row in rows))
    cases = list(dict.fromkeys(row["case"] for row in rows))
    found = {(row["case"], row["side"], row["against"]): row for row in rows}
    lines = []
    for case in cases:
        base = next((row["other"] for row in rows if row["case"] == case and row["against"] in bases), None)
        cells = [found.get((case, *column)) for column in columns]
        lines.append([title(case), "" if base is None else number(base), *map(cell, cells)])
    sides = [side if against in bases else f"{side} / {against}" for side, against in columns]
    return table(["workload", head, *sides], lines)


def shared(section: Record) -> str:
    """Return the table of searches that two processes share, and what ran them.

    >>> line = {"case": "mlp", "title": "MLP", "side": "2 ranks", "against": "auto", "rate": 30.0, "other": 20.0}
    >>> line |= {"ratio": 1.5, "low": 1.4, "high": 1.6, "choice": "side by side"}
    >>> print(shared({"rows": [line]}))
    | workload | one process, updates/s | 2 ranks |
    |---|---|---|
    | MLP 784-128-10 | 20.0 | 1.50 (1.40, 1.60) |
    <BLANKLINE>
    - MLP, 2 ranks: side by side.
    """
    choices = "\n".join(f"- {row['title']}, {row['side']}: {row['choice']}." for row in section["rows"])
    return f"{ratios(section, ('auto',), 'one process, updates/s')}\n\n{choices}"


def cell(row: Record | None) -> str:
    """Return a ratio with its least and its largest.

    >>> cell({"ratio": 1.0, "low": 0.5, "high": 20.0}), cell(None)
    ('1.00 (0.50, 20.0)', '')
    """
    if row is None:
        return ""
    return f"{number(row['ratio'])} ({number(row['low'])}, {number(row['high'])})"


def reached(goal: Goal, record: Record, sides: Sequence[str]) -> Record | None:
    """Return the best of some sides' lines for a goal; None where nothing was measured."""
    rows = [
        row
        for row in record.get(goal.kind, {}).get("rows", [])
        if (row["case"], row["against"]) == (goal.case, goal.against)
        and row["side"] in sides
        and goal.window == row.get("window", "")
    ]
    return max(rows, key=lambda row: row["ratio"], default=None)


def goals(record: Record) -> str:
    """Return the targets of what was measured; what is not reached is listed like the rest."""
    lines = []
    for goal in (goal for goal in GOALS if goal.kind in record):
        row, other = reached(goal, record, goal.sides), reached(goal, record, [goal.beside])
        found = "not measured" if row is None else f"{number(row['ratio'])}, {row['side']}"
        found += "" if other is None else f" ({number(other['ratio'])}, {other['side']})"
        answer = "" if row is None else "yes" if row["ratio"] >= goal.least else "no"
        asked = f"{' or '.join(goal.sides)} over {goal.against}, {goal.window or goal.kind}"
        lines.append([title(goal.case), asked, number(goal.least), found, answer])
    for curve, of in record.get(SCALING, {}).get("curves", {}).items():
        for executor, found in of.items():
            worst = max(found["relative"])
            asked = f"flat in the {TITLES[curve]}, {executor}: at most"
            lines.append(["small", asked, number(FLAT), number(worst), "yes" if worst <= FLAT else "no"])
    return table(["workload", "what", "target", "measured (beside it: what the machine gives)", "reached"], lines)


def searches(section: Record) -> str:
    """Return the table of the papers' space: a line per search and window, and what `auto` chose."""
    rows = section["rows"]
    columns = list(dict.fromkeys((row["side"], row["against"]) for row in rows if row["against"] != BEST))
    columns.append(("auto", BEST))
    lines, choices = [], []
    for case, window in dict.fromkeys((row["case"], row["window"]) for row in rows):
        mine = [row for row in rows if (row["case"], row["window"]) == (case, window)]
        found = {(row["side"], row["against"]): row for row in mine}
        alone = next((number(row["other"]) for row in mine if row["against"] == ONE_BY_ONE), "")
        lines.append([mine[0]["title"], window, alone, *(cell(found.get(column)) for column in columns)])
        choices += [f"- {row['title']}: {row['choice']}." for row in mine if row["side"] == "auto"][:1]
    sides = [side if against == ONE_BY_ONE else f"{side} / {against}" for side, against in columns]
    shown = table(["workload", "part", "one after another, updates/s", *sides], lines)
    return "\n\n".join([shown, "What `auto` chose:", "\n".join(dict.fromkeys(choices))]) if choices else shown


def scaling(section: Record) -> str:
    """Return a table for every curve."""
    parts = []
    for curve, of in section["curves"].items():
        values = next(iter(of.values()))["values"] if of else []
        lines = [
            [name, *(f"{cost:.0f} ({share:.2f})" for cost, share in zip(f["microseconds"], f["relative"], strict=True))]
            for name, f in of.items()
        ]
        parts.append(table([TITLES[curve], *(f"{value:,}" for value in values)], lines))
    for name, held in section.get("memory", {}).items():
        sizes = ", ".join(f"{m:.1f} MB at {r:,}" for r, m in zip(held["rounds"], held["megabytes"], strict=True))
        parts.append(f"Memory of the process by rounds, {name} (the curve's other sides before it): {sizes}.")
    return "\n\n".join(parts)


def skipped(section: Record) -> str:
    """Return what could not be measured, and why."""
    return "\n".join(f"- {gap['case']}, {gap['side']}: {gap['why']}" for gap in section.get("skipped", []))


def fell_back(section: Record) -> str:
    """Return what executors said about the path they took."""
    return "\n".join(
        f"- {row['case']}, {row['side']}: {text}" for row in section["rows"] for text in row.get("said", ())
    )


def workloads() -> str:
    """Return what the workloads are."""
    lines = [
        [work.title, str(work.examples), str(work.batch_size), str(work.epochs), str(VALIDATION)]
        for work in WORKLOADS.values()
    ]
    return table(["workload", "examples a client", "batch", "epochs", "validation examples"], lines)


def page(record: Record) -> str:
    """Return everything a page shows of a record."""
    parts = []
    names = {
        PAPERS_SPACE: "The papers' space",
        SAME: "In one process",
        CORES: "On all cores",
        OWN: "In processes of their own",
        SHARED: "Searches that two processes share",
        SCALING: "Scaling",
    }
    for kind, head in names.items():
        section = record.get(kind)
        if section is None:
            continue
        shown = {SCALING: scaling, PAPERS_SPACE: searches, SHARED: shared}.get(kind, ratios)(section)
        where = f"commit {section['commit']}; {described(section['machine'])}"
        text = [f"### {head}", f"`{section['command']}`, {section['turns']} turns; {where}."]
        text += [NOTES[kind], shown]
        if kind in (SAME, CORES):
            text += [fell_back(section)]
        if kind == OWN:
            text += [other_settings(section)]
        if gaps := skipped(section):
            text += [f"Not measured:\n\n{gaps}"]
        parts += [part for part in text if part]
    return "\n\n".join([*parts, "### Targets", goals(record)])


def other_settings(section: Record) -> str:
    """Return how the other simulators were set up, where they were measured."""
    found = {}
    for row in section["rows"]:
        name = row["side"].partition(",")[0]
        if name in OTHERS:
            found[name] = f"- {name} {row.get('version', '')}, torch {row.get('torch', '')}: {OTHERS[name].settings}."
    return "\n".join(found.values())


def filled(text: str, name: str, content: str) -> str:
    """Return a page with what stands between its two markers replaced.

    >>> print(filled("<!-- x -->old<!-- /x -->", "x", "new"))
    <!-- x -->
    new
    <!-- /x -->
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in text or end not in text:
        raise ValueError(f"the page must have {begin} and {end}, where the tables go.")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"
