import io
import sys

import pytest

from lightning_fedhpo.testing import toy_run
from lightning_fedhpo.tracking.progress import RoundProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_file_gets_a_line_with_every_tenth(capsys: pytest.CaptureFixture[str]):
    toy_run(20, RoundProgress("val_loss"), executor="sequential")
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("executor: jobs run ")
    assert [line.split(",")[0] for line in lines] == [f"round {2 * k} of 20" for k in range(1, 11)]
    assert all("val_loss 0" in line or "val_loss 1" in line for line in lines)
    assert lines[-1].endswith("0:00:00 to go")


def test_a_terminal_has_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    toy_run(4, RoundProgress(None, seconds=0.0), executor="sequential")
    first, text = stream.getvalue().split("\n", 1)
    assert first.startswith("executor: jobs run ")
    assert text.count("\n") == 1 and text.endswith("\n")
    assert [part.split(",")[0] for part in text.strip().split("\r")] == [f"round {k} of 4" for k in (1, 2, 3, 4)]
    assert "None" not in text


def test_rounds_that_come_fast_are_not_all_shown_but_the_last_is(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    toy_run(5, RoundProgress("val_loss", seconds=1000.0), executor="sequential")
    assert [part.split(",")[0] for part in stream.getvalue().strip().split("\r")][-1] == "round 5 of 5"
    assert stream.getvalue().count("\r") == 2
