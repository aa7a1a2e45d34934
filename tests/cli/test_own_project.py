"""docs/own-project.md: the files that it shows are written, and its commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lightning_fedhpo.cli.compare import main as compare
from tests.runs import call, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked

PAGE = (Path(__file__).parents[2] / "docs" / "own-project.md").read_text(encoding="utf-8")
QUICK = ["executor=sequential", "trainer.accelerator=cpu", "logger=none", "report=false"]


def test_the_project_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r'```(\w+) title="(.*?)"\n(.*?)```', PAGE, re.DOTALL)
    files = {name: content for _, name, content in shown if name != "Terminal"}
    tree = re.findall(r"([\w/]+\.(?:py|yaml)) ", PAGE.split("```")[1])
    assert {name.split("conf/")[-1] for name in files} == set(tree), "the tree at the top has them all"
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)
    (terminal,) = (content for _, name, content in shown if name == "Terminal")
    commands = [shlex.split(line, comments=True) for line in terminal.splitlines()]
    for program, *arguments in commands:
        if program == "fedhpo":
            short = ["search.budget=8", "trainer.max_epochs=4"] if "+experiment=first" in arguments else []
            assert call(*arguments, *QUICK, *short) == (None, ""), arguments
        else:
            assert compare(arguments) == 0
    assert "Missing" not in capsys.readouterr().out
    (folder,) = (path.parent for path in Path("sweep").rglob("0/history.csv"))
    history = rows(folder / "history.csv")
    assert {name for name in history[0] if name.startswith("client/")} == {
        "client/lr",
        "client/epochs",
        "client/dropout",
    }
    assert history[-1]["ledger/rounds"] == "8"
