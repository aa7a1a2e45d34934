"""``fedhpo-report``, and the report at the end of ``fedhpo``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightning_fedhpo.cli.compare import main as compare
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.cli.report import main
from tests.runs import PLAIN, SMALL, Whole, call, composed, quiet_surroundings  # noqa: F401 - the fixture is used unasked


def test_a_run_ends_with_its_report_and_how_to_run_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "<b>run"
    typed = [*SMALL[:-1], *PLAIN, "executor=sequential", "logger=none", "seed=3"]
    assert call(*typed, f"hydra.run.dir='{folder}'")[0] is None
    assert capsys.readouterr().out.splitlines()[-1] == f"Report: {folder / 'report.html'}"
    html = (folder / "report.html").read_text()
    assert f"<pre>cd {Path.cwd()}\nfedhpo {' '.join(typed)}</pre>" in html
    assert "<b>run" not in html and "&lt;b&gt;run" in html
    assert len(html) < 8e6
    assert main([str(folder)]) == 0
    assert (folder / "report.html").read_text() == html, "from the files as from memory"


def test_without_plotly_a_run_ends_well_and_its_warnings_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.warns(UserWarning, match="prefers large values") as shown:
        summary = train(composed(tmp_path, *PLAIN, "report=true", "data.clients=4", "fed.mode=max"))
    assert summary["warnings"] == list(dict.fromkeys(str(warning.message) for warning in shown))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("There is no report: ") and 'pip install "lightning-fedhpo[report]"' in last
    assert (tmp_path / "summary.json").is_file() and not (tmp_path / "report.html").exists()


def test_the_command(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(whole.folder)]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == whole.folder / "report.html" and "lr" in path.read_text()
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def shorter(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def without_cells(path: Path, cell: str) -> None:
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *(",".join(cell for _ in line.split(",")) for line in lines)]) + "\n")


def other_kind(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "a cut table": ("history.csv", cut, "history.csv cannot be read"),
    "a table cut between its lines": ("history.csv", shorter, "history.csv ends after 3 of the run's 4 rounds"),
    "no line but the first": (
        "history.csv",
        lambda path: path.write_text("round,arm,score\n"),
        "history.csv has no rows",
    ),
    "another tool's table": (
        "history.csv",
        lambda path: path.write_text("step,loss\n1,2\n"),
        "no column 'ledger/rounds'",
    ),
    "an empty table": ("history.csv", lambda path: path.write_text(""), "history.csv cannot be read"),
    "a binary table": ("history.csv", lambda path: path.write_bytes(bytes(range(256))), "history.csv cannot be read"),
    "no table": ("history.csv", Path.unlink, "history.csv"),
    "words for numbers": (
        "history.csv",
        lambda path: without_cells(path, "x"),
        "has texts in its column 'ledger/rounds'",
    ),
    "nan for numbers": ("history.csv", lambda path: without_cells(path, "nan"), "history.csv ends after nan of"),
    "cut JSON": ("summary.json", cut, "summary.json cannot be read"),
    "JSON of another shape": ("summary.json", lambda path: path.write_text("[1]"), "it holds a list"),
    "JSON of another tool": ("summary.json", lambda path: path.write_text("{}"), "summary.json cannot be read"),
    "a folder for a file": ("summary.json", other_kind, "no summary.json"),
    "a cut configuration": ("config.yaml", lambda path: path.write_text("fed: {"), "config.yaml cannot be read"),
    "another configuration": ("config.yaml", lambda path: path.write_text("fed: 3"), "config.yaml cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_told_in_one_line_and_left_out_of_a_sweep(
    whole: Whole, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, change, message = DAMAGE[damage]
    for run in ("0", "1"):
        shutil.copytree(whole.folder, tmp_path / run, ignore=shutil.ignore_patterns("wandb", "checkpoints"))
    change(tmp_path / "1" / name)
    for command in (main, compare):
        assert command([str(tmp_path / "1")]) == 1
        out, told = capsys.readouterr()
        assert message in told.replace("(no summary.json)", "no summary.json"), told
        assert not out and len(told.splitlines()) == 1 and "Traceback" not in told
    assert compare([str(tmp_path)]) == 0
    assert damage == "a folder for a file" or f"\n  1  {tmp_path / '1' / name} " in capsys.readouterr().out


def test_what_no_check_foresees_is_one_line_too(
    whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = json.loads((whole.folder / "summary.json").read_text())
    shutil.copytree(whole.folder, tmp_path / "run", ignore=shutil.ignore_patterns("wandb", "checkpoints"))
    for wrong in ({"seconds": "x"}, {"arms": None}, {"best": []}):
        (tmp_path / "run" / "summary.json").write_text(json.dumps(summary | wrong))
        assert main([str(tmp_path / "run")]) == 1
        (told,) = capsys.readouterr().err.splitlines()
        assert f"{tmp_path / 'run'} has not the files of a run, or they are damaged" in told
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(TypeError, match="list indices"):
        main([str(tmp_path / "run")])


@pytest.mark.parametrize("kind", ["nothing", "a file", "an empty folder"])
def test_what_is_no_folder_of_runs_is_said(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "it"
    if kind != "nothing":
        path.touch() if kind == "a file" else path.mkdir()
    for command in (main, compare):
        assert command([str(path)]) == 1
        assert "summary.json" in capsys.readouterr().err
