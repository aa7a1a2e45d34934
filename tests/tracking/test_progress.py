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


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, [1, 2, 3, 4]), (1000.0, [1, 4])])
def test_a_terminal_has_one_line_that_is_rewritten_now_and_then(
    monkeypatch: pytest.MonkeyPatch, seconds: float, shown: list[int]
):
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    toy_run(4, RoundProgress(None, seconds=seconds), executor="sequential")
    first, text = stream.getvalue().split("\n", 1)
    assert first.startswith("executor: jobs run ")
    assert text.count("\n") == 1 and text.endswith("\n")
    assert [part.split(",")[0] for part in text.strip().split("\r")] == [f"round {k} of 4" for k in shown]
    assert "None" not in text
