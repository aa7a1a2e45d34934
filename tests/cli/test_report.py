"""``fedhpo-report``, and the report at the end of ``fedhpo``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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


def test_a_folder_without_a_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "summary.json" in capsys.readouterr().err
