"""The comparison of a folder of runs, on folders written here."""

from __future__ import annotations

import csv
import json
import math
import shlex
import statistics
from pathlib import Path

import pytest

from lightning_fedhpo.cli.compare import main
from lightning_fedhpo.plots.sweep_data import load_sweep
from lightning_fedhpo.report.comparison_table import means


def write(folder: Path, told: list[str], seed: int, tests: dict[int, float], spent: int, steps: int = 1) -> None:
    """A run's folder with an error that was tested on the way, and so many local steps a round."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {one}\n" for one in [*told, f"seed={seed}"]))
    last = tests[max(tests)]
    test = {"global": {"test_error": last}, "personalized": {"test_error": last / 2}}
    summary = {"seed": seed, "ledger": {"rounds": spent, "local_steps": steps * spent}, "test": test}
    (folder / "summary.json").write_text(json.dumps(summary))
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        tested = ["test/test_error", "test/test_error_personalized", "test/arm"]
        writer.writerow(["round", "arm", "score", "best", *tested, "ledger/rounds", "ledger/local_steps"])
        for number, rounds in enumerate(range(10, spent + 1, 10)):
            error = tests.get(rounds)
            row = ["", "", ""] if error is None else [error, error / 2, 0]
            writer.writerow([number, 0, 1 / rounds, True, *row, rounds, steps * rounds])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two methods, three seeds each; one method runs on beyond the other's budget."""
    for seed in range(3):
        write(tmp_path / f"a{seed}", ["tuner=none"], seed, {50: 0.5 + seed / 10, 100: 0.4 + seed / 10}, 100)
        write(tmp_path / f"b{seed}", ["tuner=fedex"], seed, {50: 0.6, 100: 0.3 - seed / 100, 150: 0.1}, 150)
    return tmp_path


def test_seeds_are_one_row_at_equal_budget(folder: Path) -> None:
    table = means(load_sweep(folder)).table
    assert table["run"] == ["search alone", "tuner=fedex"]
    assert table["seeds"] == [3, 3]
    assert table["rounds"] == [100, 100]
    fedex = [0.3, 0.29, 0.28]
    assert table["test_error"] == pytest.approx([0.5, statistics.fmean(fedex)])
    assert table["test_error std"] == pytest.approx([0.1, statistics.stdev(fedex)])
    halves = [4.302653 * value / math.sqrt(3) for value in (0.1, statistics.stdev(fedex))]  # Student's t, two degrees
    assert table["test_error ±"] == pytest.approx(halves)
    assert table["test_error_personalized"] == pytest.approx([0.25, 0.145])


def test_a_smaller_budget_looks_back(folder: Path) -> None:
    assert means(load_sweep(folder), budget=60).table["test_error"] == pytest.approx([0.6, 0.6])


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--metric", "test_error", "--csv", str(tmp_path / "t.csv")]) == 0
    out = capsys.readouterr().out
    assert "tuner=fedex" in out
    assert "0.5000 ± 0.2484" in out and "95 % interval" in out  # 4.303 * 0.1 / sqrt(3)
    with (tmp_path / "t.csv").open() as file:
        assert [row["seeds"] for row in csv.DictReader(file)] == ["3", "3"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("--metric accuracy", "no run was tested for accuracy"),
        ("--budget 5", "no test within 5 rounds"),
        (
            "--budget 200",
            "no run has reached a budget of 200 rounds of all arms, and all have spent 100 rounds of all arms: leave",
        ),
        ("--at euros", "counted in rounds, updates, steps, bytes or seconds, got 'euros'"),
        ("--at seconds", "not all runs have simulated seconds: FederatedLoop(devices="),
        ("--level 90", "`level` must be in (0, 1), got 90.0: 0.95 stands for 95 %."),
        ("--labels tuner=fedx=FedEx", "no method of this sweep: there are 'search alone', 'tuner=fedex'. Did you mean"),
        ("--labels FedEx", "`--labels` takes METHOD=NAME, got 'FedEx'"),
        ("--labels tuner=fedex=A 'search alone=A'", "several would be called 'A'"),
        ("--order tuner=fedex", "`order` must have every method once, and 'search alone' is not there"),
        ("--order tuner=fedex tuner=fedex 'search alone'", "once, and 'tuner=fedex' is there twice"),
        ("--order fedex 'search alone'", "`order` has 'fedex', which is no method of this sweep"),
        ("--paired fedex", "`paired` has 'fedex', which is no method of this sweep: there are 'search alone', 'tuner"),
    ],
)
def test_what_cannot_be_compared_is_said(
    folder: Path, extra: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), *shlex.split(extra)]) == 1
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1


@pytest.fixture
def paired(tmp_path: Path) -> Path:
    """Three methods with the seeds 0 to 3, one of them with a fifth; gaps from the first one are as below."""
    for seed, base in enumerate((0.5, 0.6, 0.4, 0.7)):
        write(tmp_path / f"a{seed}", ["tuner=none"], seed, {100: base}, 100)
        write(tmp_path / f"b{seed}", ["tuner=fedex"], seed, {100: base + BETTER[seed]}, 100)
        write(tmp_path / f"c{seed}", ["tuner=fedpop"], seed, {100: base + ALIKE[seed]}, 100)
    write(tmp_path / "c4", ["tuner=fedpop"], 4, {100: 0.9}, 100)
    return tmp_path


BETTER, ALIKE = (-0.1, -0.12, -0.08, -0.1), (0.02, -0.01, 0.01, -0.03)


def test_differences_are_paired_by_seed(paired: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """t of the first is -0.1 / 0.00816 = -12.25 with three degrees of freedom, of the second -0.2255."""
    options = ["--paired", "search alone", "--level", "0.9", "--metric", "test_error", "--csv", str(tmp_path / "t.csv")]
    assert main([str(paired), *options]) == 0
    head, fedex, fedpop, *notes = capsys.readouterr().out.splitlines()
    half = 2.353363 * statistics.stdev(BETTER) / 2  # of Student's t, 90 %, three degrees of freedom
    assert fedex.split("  ")[0] == "tuner=fedex" and f"-0.1000 ± {half:.4f}" in fedex
    assert head.split()[-3:] == ["test_error", "p", "(Holm)"] and fedpop.split()[-1] == "0.8361"
    assert "90 % interval" in " ".join(notes) and "Holm's correction for the 2 comparisons" in " ".join(notes)
    assert "only one of the two has these seeds: tuner=fedpop 4." in " ".join(notes)
    with (tmp_path / "t.csv").open() as file:
        first, second = csv.DictReader(file)
    assert float(first["test_error p"]) == pytest.approx(0.001172, abs=1e-6)
    assert float(first["test_error p (Holm)"]) == pytest.approx(2 * 0.001172, abs=2e-6)
    assert first["seeds"] == second["seeds"] == "4"
    assert float(second["test_error"]) == pytest.approx(-0.0025)


def test_runs_that_have_no_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> str:
        assert main([str(tmp_path), "--paired", "tuner=fedex"]) == 1
        return capsys.readouterr().err

    write(tmp_path / "a0", ["tuner=fedex"], 0, {100: 0.5}, 100)
    write(tmp_path / "b0", ["tuner=none"], 0, {100: 0.4}, 100)
    assert "pairs need at least two seeds that both have, and 'tuner=fedex' has one: run" in said()
    write(tmp_path / "a1", ["tuner=fedex"], 1, {100: 0.5}, 100)
    assert "'search alone' has 1 of those of 'tuner=fedex'" in said()
    write(tmp_path / "b1", ["tuner=none"], 0, {100: 0.5}, 100)
    assert "'search alone' has seed 0 more than once" in said()


def test_equal_local_steps_are_other_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second method takes twice the steps: 100 of its rounds are 200 of the first one's."""
    write(tmp_path / "a", ["tuner=none"], 0, {100: 0.5, 200: 0.4, 300: 0.3}, 300)
    write(tmp_path / "b", ["tuner=fedex"], 0, {100: 0.2, 200: 0.1}, 200, steps=2)
    assert main([str(tmp_path), "--metric", "test_error", "--at", "steps"]) == 0
    head, alone, fedex, note, _ = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "seeds", "steps", "test_error"]
    assert alone.split()[2:] == ["1", "300", "0.3000"] and fedex.split()[1:] == ["1", "200", "0.2000"]
    assert "within 300 local steps, the most that all runs have spent" in note
    assert main([str(tmp_path), "--metric", "test_error", "--at", "local_steps", "--budget", "200"]) == 0
    assert "0.4000" in capsys.readouterr().out
    report = (tmp_path / "report.html").read_text()
    assert "after 200 local steps" in report and "against local steps" in report
    assert main([str(tmp_path), "--metric", "test_error", "--at", "steps", "--budget", "350"]) == 0
    assert "Some runs ended before, at 300 local steps or later." in capsys.readouterr().out


def test_labels_and_order_are_those_of_the_report_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--labels", "tuner=fedex=A_1 & <b>", "--order", "tuner=fedex", "search alone"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line[:12].strip() for line in out[1:3]] == ["A_1 & <b>", "search alone"]
    assert "A_1 &amp; &lt;b&gt; has the smallest test_error" in (folder / "report.html").read_text()


def test_the_table_for_latex(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["search alone=SHA", 'tuner=fedex=50% of {A_1} & "#2 ~ x^2 \\ $']
    assert main([str(folder), "--latex", "--metric", "test_error", "--labels", *names]) == 0
    out, err = capsys.readouterr()
    assert r"method & seeds & rounds & test\_error \\" in out and r"SHA & 3 & 100 & $0.5000 \pm 0.2484$ \\" in out
    escaped = r"50\% of \{A\_1\} \& ''\#2 \textasciitilde{} x\textasciicircum{}2 \textbackslash{} \$ & 3"
    assert escaped in out and r"$\pm$: half of the 95 \% interval" in out
    assert out.startswith("% \\usepackage{booktabs}\n\\begin{table}") and out.endswith("\\end{table}\n")
    assert "Report: " in err


def test_an_empty_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "no finished run" in capsys.readouterr().err
