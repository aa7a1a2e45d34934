from pathlib import Path

from lightning_fedhpo.cli.console import report
from lightning_fedhpo.report.words import number_text

SUMMARY = {
    "best": {"client": {"lr": 0.123456, "epochs": 3}, "server": {}},
    "test": {
        "global": {"test_loss": 0.512345, "test_acc": None},
        "personalized": {"test_loss": 0.25},
        "clients": 1200,
    },
    "ledger": {
        "rounds": 800,
        "client_updates": 16000,
        "local_steps": 2_000_000,
        "examples": 3,
        "evaluations": 4,
        "bytes_up": 1_500_000,
        "bytes_down": 2_000_000_000,
    },
    "seconds": 61.04,
}


def test_what_was_found_what_it_cost_and_where_it_is(tmp_path: Path):
    (tmp_path / "summary.json").touch()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".hydra").mkdir()
    lines = report(SUMMARY, tmp_path, ["a note"]).splitlines()
    rows = [line.split() for line in lines]
    assert ["client", "lr", "0.1235,", "epochs", "3"] in rows
    assert ["server", "none"] in rows
    assert ["Test", "examples", "of", "1,200", "clients", "global", "personalized"] in rows
    assert ["test_loss", "0.5123", "0.25"] in rows
    assert ["test_acc", "-", "-"] in rows
    assert ["rounds", "800"] in rows
    assert ["local", "steps", "2,000,000"] in rows
    assert ["sent", "by", "and", "to", "clients", "1.5", "MB", "2.0", "GB"] in rows
    assert "It took 61.0 seconds and cost" in lines
    assert f"Everything is in {tmp_path}" in lines
    assert ["checkpoints/", "summary.json"] in rows
    assert lines[-1] == "a note"


def test_nothing_was_tested(tmp_path: Path):
    assert "nothing was tested" in report(SUMMARY | {"test": None}, tmp_path)


def test_lines_keep_to_the_width(tmp_path: Path):
    many = {"client": {f"module.layers.{i}.scale": 1 / (i + 1) for i in range(30)}, "server": {"lr": 1.0}}
    lines = report(SUMMARY | {"best": many}, tmp_path, width=80).splitlines()
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    assert all(any(f"module.layers.{i}.scale {number_text(1 / (i + 1))}" in line for line in lines) for i in range(30))
