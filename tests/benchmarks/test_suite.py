"""The suite end to end on a tiny turn, and what it computes from rates."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import guard, papers, processes, ratios, scaling, suite, tables
from benchmarks.cases import BARE, BEST, BEST_BARE, CORES, FEDAVG, ONE_BY_ONE, OWN, PAPERS_SPACE, SAME, SHARED, Case
from benchmarks.goals import GOALS
from benchmarks.rates import Timed
from benchmarks.workloads import WORKLOADS
from lightning_fedhpo import FedAvg, FederatedLoop, Scaffold


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Put back what the suite sets for its whole process."""
    threads = torch.get_num_threads()
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        yield
    torch.set_num_threads(threads)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("there", "given", "message"),
    [
        (False, [], r"argument --device: torch \S+ sees no device 'cuda' on this machine$"),
        (True, ["--sections", "own"], "cuda has the sections papers, same; docs and guard are a CPU's$"),
        (True, ["--record"], "cuda has the sections"),
    ],
)
def test_a_device_that_is_not_there_is_refused_in_a_sentence(
    there: bool, given: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    with pytest.raises(SystemExit):
        suite.main(["--device", "cuda", *given])
    assert re.search(message, capsys.readouterr().err.strip())


TINY = [Case("logistic", cohort=2, rounds=1, executors=("sequential", "auto"))]


@pytest.mark.slow
def test_a_tiny_run_writes_record_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "speed.md").write_text("before\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n")
    monkeypatch.setattr(suite, "CASES", TINY)
    monkeypatch.setattr(suite, "DOCS", docs)
    monkeypatch.setattr(scaling, "CURVES", {"cohort": (2, 4), "rounds": (3, 5), "kept": (3, 5)})
    monkeypatch.setattr(scaling, "UPDATES", 4)
    out = tmp_path / "results"
    given = ["--sections", "same", "scaling", "--turns", "1", "--curves", "cohort", "rounds", "kept", "--out", str(out)]
    assert suite.main([*given, "--page"]) == 0
    record = json.loads((out / "speed.json").read_text())
    rows = {(row["side"], row["against"]): row for row in record[SAME]["rows"]}
    assert rows["sequential", BARE]["ratio"] > 0
    assert ("auto", BEST) in rows
    assert record[tables.SCALING]["curves"]["cohort"]["sequential"]["values"] == [2, 4]
    page = (docs / "speed.md").read_text()
    assert page.startswith("before\n<!-- speed -->\n") and page.endswith("<!-- /speed -->\nafter\n")
    assert "old" not in page and "logistic regression 60-10, cohort 2" in page and "| target |" in page
    assert str(tmp_path) not in page and f"commit {record[SAME]['commit']}" in page


def test_a_process_that_fails_says_why_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = (
        ("-c", code) for code in ("print('{\"rate\": 1}')", "raise SystemExit('no such thing as /usr/lib/x.py')")
    )
    monkeypatch.setattr(processes, "OURS", {BARE: good, "bad": bad})
    rows, skipped = processes.compared("logistic", 1, {}, say=lambda text: None, rounds=1)
    assert rows == []
    assert skipped == [{"case": "logistic", "side": "bad", "why": "no such thing as ..."}]


def test_two_ranks_stand_beside_two_that_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"sequential": 2.0, "2 apart": 2.0, "2 ranks": 3.0}
    monkeypatch.setattr(processes, "OURS", {name: (name,) for name in rates})
    monkeypatch.setattr(processes, "child", lambda python, arguments: {"rate": rates[arguments[0]]})
    rows, _ = processes.compared("mlp", 1, {})
    found = {(row["side"], row["against"]): row["ratio"] for row in rows}
    assert found["2 apart", "sequential"] == 2.0  # two of them
    assert found["2 ranks", "sequential"] == 1.5
    assert found["2 ranks", "2 apart"] == 0.75


def test_a_search_that_two_processes_share_stands_beside_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def child(python: str, arguments: list[str]) -> dict[str, object]:
        assert arguments[2] == "search" and arguments[-1] == "mlp-arms"
        return {"rate": 3.0 if "--devices" in arguments else 2.0, "choice": "in lanes"}

    monkeypatch.setattr(processes, "child", child)
    rows, _ = processes.shared("mlp-arms", 2)
    assert [(row["kind"], row["side"], row["against"], row["ratio"]) for row in rows] == [
        (SHARED, "2 ranks, auto", "auto", 1.5)
    ]
    assert "| MLP 784-128-10, 27 arms | 2.00 | 1.50 (1.50, 1.50) |" in tables.shared({"rows": rows})


def test_an_executor_that_fails_is_a_line_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ratios.federated

    def failing(*args: object, **options: object) -> Timed:
        if args[2:] == ("auto",):
            raise RuntimeError("cannot")
        return real(*args, **options)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(ratios, "federated", failing)
    rows, skipped = ratios.compared(TINY[0], 1, say=lambda text: None)
    assert [gap["side"] for gap in skipped] == ["auto"]
    assert BARE in {row["against"] for row in rows}


def test_another_method_is_over_fedavg_by_the_same_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(*args: object, algorithm: FedAvg | Scaffold, **options: object) -> Timed:
        return Timed(10, 0.0, [9.0, 4.0 if isinstance(algorithm, Scaffold) else 2.0], [], FederatedLoop(algorithm))

    monkeypatch.setattr(ratios, "federated", timed)
    rows, skipped = ratios.compared(Case("logistic", executors=("vectorized",), algorithm=Scaffold), 1)
    found = [(row["side"], row["against"], row["rate"], row["other"], row["ratio"]) for row in rows]
    assert (found, skipped) == ([("vectorized", FEDAVG, 2.5, 5.0, 0.5)], [])
    assert "vectorized / FedAvg" in tables.ratios({"rows": rows})


@pytest.mark.slow
def test_on_all_cores_bare_loops_with_one_thread_and_with_all_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratios.os, "cpu_count", lambda: 2)
    threads = torch.get_num_threads()
    rows, skipped = ratios.compared(TINY[0], 1, say=lambda text: None, kind=CORES)
    assert not skipped
    against = [("sequential", BEST_BARE), ("auto", BEST_BARE), ("auto", BEST)]
    assert [(row["side"], row["against"]) for row in rows] == against
    assert torch.get_num_threads() == threads


def test_on_all_cores_the_better_bare_loop_counts() -> None:
    taken = {BARE: [2.0], f"{BARE}, 2 threads": [3.0], "sequential": [6.0]}
    assert [row["ratio"] for row in ratios.rows_of(CORES, "mlp", taken)] == [2.0]


def test_every_goal_is_about_something_that_is_measured() -> None:
    names = {case.name for case in suite.CASES}
    assert {goal.case for goal in GOALS if goal.kind not in (PAPERS_SPACE, SHARED)} <= names
    assert {goal.case for goal in GOALS if goal.kind == SHARED} <= set(papers.SHARED_SEARCHES)
    searched = {(goal.case, side) for goal in GOALS if goal.kind == PAPERS_SPACE for side in goal.sides[:1]}
    assert searched <= {(name, side) for name, search in papers.SEARCHES.items() for side in search.executors}
    assert {side for goal in GOALS for side in goal.sides if goal.kind == OWN} <= set(processes.OURS)


def test_goals_list_what_is_not_reached() -> None:
    line = ratios.row(SAME, "mlp", "sequential", BARE, [0.5], [1.0])
    found = tables.goals({SAME: {"rows": [line]}})
    texts = [text for text in found.splitlines() if text.endswith("| 0.95 | 0.50, sequential | no |")]
    assert [text.split(" | ")[0] for text in texts] == [f"| {WORKLOADS['mlp'].title}"]


def test_a_goal_of_the_papers_space_is_reached_in_its_own_part_of_a_run() -> None:
    line = ratios.row(PAPERS_SPACE, "lenet", "lanes", ONE_BY_ONE, [1.2], [1.0]) | {"window": "late"}
    found = tables.goals({PAPERS_SPACE: {"rows": [line]}}).splitlines()
    lenet = [text.split(" | ")[1:] for text in found if "| LeNet-5 | lanes" in text and "over sequential" in text]
    asked = "lanes or compiled or auto over sequential"
    assert lenet[0] == [f"{asked}, early", "1.10", "not measured", " |"]
    assert lenet[1] == [f"{asked}, late", "1.10", "1.20, lanes", "yes |"]


def test_the_page_lists_the_workloads_as_they_are() -> None:
    page = (suite.ROOT / "docs" / "speed.md").read_text()
    assert tables.workloads() in page


def test_a_search_is_measured_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"sequential": papers.Windows(2.0, 4.0, 3.0, "one"), "auto": papers.Windows(3.0, 4.0, 3.6, "lanes")}
    monkeypatch.setattr(papers, "windows", lambda search, data, executor: taken[executor])
    rows = papers.compared("logistic", 1, ("sequential", "auto"))
    found = {(row["window"], row["against"]): row["ratio"] for row in rows}
    assert found["early", ONE_BY_ONE] == 1.5 and found["late", BEST] == 1.0 and found["whole", BEST] == 1.2
    table = tables.searches({"rows": rows})
    assert table.count("| logistic regression 60-10 | ") == 3 and table.endswith("- logistic regression 60-10: lanes.")


def test_lines_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case, turns: int, kind: str) -> object:
        if case.name == "mlp":
            return [ratios.row(kind, "mlp", "sequential", BARE, [1.0], [1.0])], []
        raise KeyboardInterrupt

    monkeypatch.setattr(ratios, "compared", broken)
    with pytest.raises(KeyboardInterrupt):
        suite.main(["--sections", "same", "--out", str(tmp_path)])
    assert [row["case"] for row in json.loads((tmp_path / "speed.json").read_text())[SAME]["rows"]] == ["mlp"]


@pytest.mark.slow
def test_a_search_runs() -> None:
    search = replace(papers.SEARCHES["logistic-unequal"], rounds=3)
    found = papers.windows(search, search.data(), "auto")
    assert min(found.early, found.late, found.whole) > 0 and "side by side" in found.choice


@pytest.mark.parametrize(("ratio", "code"), [(0.79, 1), (0.81, 0)])
def test_the_guard_fails_below_its_share(ratio: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    turns: list[int] = []

    def measured(cases: object, number: int, say: object, searches: object = ()) -> dict[str, float]:
        turns.append(number)
        return {"mlp sequential": ratio}

    monkeypatch.setattr(guard, "measured", measured)
    recorded = {"machine": guard.machine(), "ratios": {"mlp sequential": 1.0}}
    assert guard.check(recorded, 3, said.append) == code
    assert turns == ([3, 6] if code else [3])
    assert any(text.startswith("FAILED mlp sequential: 0.79 is 0.79 of the recorded 1.00") for text in said) == code


def test_the_guards_record_is_of_what_it_measures() -> None:
    recorded = json.loads(guard.RECORDED.read_text())["ratios"]
    searched = {f"{name} {side}, papers' space" for name in guard.SEARCHES for side in guard.SIDES[1:]}
    assert set(recorded) <= searched | {f"{case.workload} {name}" for case in guard.CASES for name in case.executors}
    assert {name for name in recorded if name.endswith("sequential")} == {f"{name} sequential" for name in WORKLOADS}
    assert set(guard.SEARCHES) <= set(papers.SEARCHES)
