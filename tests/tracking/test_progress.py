"""What shows how far a run is: on a pseudo-terminal, without rich, in a file, and not at all."""

from __future__ import annotations

import importlib.util
import logging
import math
import sys

import lightning
import pytest
from lightning.pytorch import Callback

from lightning_fedhpo import FedEx, Float, SearchSpace, SuccessiveHalving
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run
from lightning_fedhpo.tracking.progress import RoundProgress
from tests.tracking.terminal import screen, terminal

SPACE = SearchSpace(client={"lr": Float(0.01, 0.1)}, server={"lr": Float(0.5, 1.0)})


@pytest.fixture(autouse=True)
def timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn does not depend on how busy the machine is."""
    monkeypatch.setattr("lightning_fedhpo.tracking.progress.PAUSE", 0.0)
    monkeypatch.setattr("lightning_fedhpo.tracking.progress.LONG", math.inf)


class Speaks(Callback):
    """Prints and logs after the second round, and raises after the fourth."""

    def __init__(self, stream: object) -> None:
        self._logger = logging.getLogger("lightning.pytorch")
        self._handler = logging.StreamHandler(stream)  # type: ignore[type-var]

    def setup(self, *arguments: object, **named: object) -> None:
        self._logger.addHandler(self._handler)

    def on_train_epoch_end(self, trainer: lightning.Trainer, *arguments: object) -> None:
        if trainer.current_epoch == 1:
            print("printed")
            self._logger.warning("logged")
            print("warned", file=sys.stderr)
        if trainer.current_epoch == 3:
            raise KeyboardInterrupt

    def on_exception(self, *arguments: object) -> None:
        self._logger.removeHandler(self._handler)


def test_a_log_file_gets_a_line_with_every_tenth(capsys: pytest.CaptureFixture[str]):
    toy_run(20, RoundProgress("val_loss"), executor="sequential")
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("executor: jobs run ")
    assert [line.split(",")[0] for line in lines] == [f"round {2 * k} of 20" for k in range(1, 11)]
    assert all("val_loss 0" in line or "val_loss 1" in line for line in lines)
    assert lines[-1].endswith("0:00:00 to go")


def test_a_terminal_has_a_live_view_of_arms_and_beliefs():
    fed = FederatedLoop(cohort=3, executor="sequential")
    search = SuccessiveHalving(SPACE, eta=2, eliminations=1, budget=6, max_rounds=4)
    trainer = quiet_trainer(9, fed, search, FedEx(SPACE, configs=5), RoundProgress(seconds=0.0))
    with terminal() as shown:
        trainer.fit(ToyModule(), datamodule=toy_data())
    executor, *lines, end = screen(shown.text)
    assert executor == f"executor: {fed.choice}." and end == ""
    live = [line for line in lines if line]
    assert [line[:8].strip() for line in live] == ["round", "arms", "val_loss", "FedEx", "", "", ""]
    assert live[0].startswith("round     4 of 4 ━") and live[0].endswith("0:00:00 to go")
    best = fed.result.arms[fed.result.best_arm]
    assert live[1] == f"arms      1 of 2 live, the best is arm {best['index']}"
    top = min(best["scores"])
    told = f"{best['scores'][-1]:.4g}, best so far {top:.4g} after {best['scores'].index(top) + 1} rounds"
    assert live[2] == f"val_loss  {told}"
    rows = [row for row in fed.result.configs if row["arm"] == best["index"]]
    *leaders, _, _ = sorted(rows, key=lambda row: -row["probability"])
    rest = 1 - sum(row["probability"] for row in leaders)
    for line, row in zip(live[3:6], leaders, strict=True):
        assert line[8:].split()[0] == f"{row['probability']:.2f}" and line.endswith(f" lr {row['lr']:.3g}")
    assert live[6].split()[0] == f"{rest:.2f}" and live[6].endswith(" 2 others")
    assert "2 of 2 live" in shown.text, "it was drawn before the elimination, too"


@pytest.mark.parametrize("rich", [True, False])
def test_messages_and_interrupts_leave_the_terminal_clean(rich: bool, monkeypatch: pytest.MonkeyPatch):
    if not rich:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with terminal() as shown:
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            toy_run(9, Speaks(shown.stream), RoundProgress(seconds=0.0), executor="sequential")
        print("what follows")
    text = shown.text
    lines = [line for line in screen(text) if line]
    assert lines[-1] == "what follows"
    assert text.rfind("\x1b[?25h") >= text.rfind("\x1b[?25l"), "the cursor is there"
    if rich:
        above = lines[: next(number for number, line in enumerate(lines) if line.startswith("round "))]
        assert "printed" in above and "logged" in above and "warned" in above
        assert [line.split()[0] for line in lines[len(above) :]] == ["round", "val_loss", "what"]
        assert sum("round " in line for line in lines) == 1
    else:
        assert any(line.startswith("round 3 of 9, val_loss ") for line in lines)


def test_lines_and_silence_can_be_asked_for():
    with terminal() as shown:
        toy_run(1, RoundProgress(show="lines"), executor="sequential")
        toy_run(1, RoundProgress(show="quiet"), executor="sequential")
    executor, line, end = screen(shown.text)
    assert executor.startswith("executor: ") and line.startswith("round 1 of 1, val_loss ") and end == ""
    with pytest.raises(ValueError, match="`show` must be one of 'auto', 'lines', 'quiet', got 'loud'"):
        RoundProgress(show="loud")  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, [0, 1, 2, 3, 4]), (1000.0, [0, 4])])
def test_a_terminal_without_rich_has_one_line_that_is_rewritten_now_and_then(
    monkeypatch: pytest.MonkeyPatch, seconds: float, rounds: list[int]
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with terminal() as shown:
        toy_run(4, RoundProgress(None, seconds=seconds), executor="sequential")
    _, text = shown.text.replace("\r\n", "\n").split("\n", 1)
    assert text.count("\n") == 1 and text.endswith("\n")
    assert [part.split(",")[0] for part in text.strip().split("\r")] == [f"round {k} of 4" for k in rounds]
    assert "None" not in text
