"""Errors of ``fedhpo``: which ones are told in one line, and that it is the right line."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from hydra.errors import CompactHydraException

from lightning_fedhpo.cli.errors import readable
from lightning_fedhpo.cli.main import run, train
from lightning_fedhpo.tracking import mlflow
from tests.runs import PLAIN, Whole, answer, composed, quiet_surroundings  # noqa: F401 - the fixture is used unasked


def test_wrong_settings_need_no_traceback(tmp_path: Path) -> None:
    partition = {"_target_": "lightning_fedhpo.Iid", "clients": 2}
    missing = composed(tmp_path, *PLAIN)
    missing.data = {"_target_": "lightning_fedhpo.data.mnist", "path": "nowhere", "partition": partition}
    with pytest.raises(FileNotFoundError, match="`path` must be an .npz file, or a folder") as caught:
        train(missing)
    assert readable(caught.value)
    with pytest.raises(ValueError, match="`cohort` is 9") as too_many:
        train(composed(tmp_path, *PLAIN, "fed.cohort=9"))
    assert readable(too_many.value)
    assert not readable(ValueError("raised by nobody"))


COMMANDS = {
    "threads=many seed=x algorithm.lr=0 tuner.configs=0 trainer.max_epochs=2 fed.cohort=9 evaluate.clients=9": [
        "fedhpo: 7 settings are wrong:",
        "\n- `threads` must be a whole number, got 'many'",
        "\n- `seed` must be a whole number, got 'x'",
        "\n- algorithm: the server's `lr` must be above 0, got 0",
        "\n- search: the rungs must end one after another",
        "\n- tuner: `configs` must be at least 1",
        "\n- `cohort` is 9",
        "\n- `evaluate.clients` must be from 1 to 8, the clients with examples; got 9",
    ],
    "tuner=fedx": ["Could not find 'tuner/fedx'", "fedex", "multiplicative"],
    "space/client=[sgdd]": ["Could not load 'space/client/sgdd'"],
    "tuner.confgs=3": ["Key 'confgs' is not in struct", "full_key: tuner.confgs"],
    "tunr=fedex": ["Could not override 'tunr'"],
    "resume=last": ["fedhpo: `resume` must be true or false, got 'last': `ckpt_path` takes a file."],
    "hydra.run.dir=/dev/null/x": ["fedhpo: `hydra.run.dir` must be a folder that can be", "/dev/null is a file"],
    "-m seed=0,1 hydra.sweep.dir=/dev/null/x": ["fedhpo: `hydra.sweep.dir` must be a folder", "/dev/null is a file"],
    "tuner=null": ["fedhpo: `tuner` must be the name of an option, got null: `fedhpo --help` lists them, none"],
    "clients=null": ["fedhpo: `clients` must be the name of an option, got null"],
    "noise=true": ["fedhpo: `noise` must be the name of an option, got true"],
    "+experiment=null": ["fedhpo: `experiment` must be the name of an option, got null"],
    "space/client=-1": ["fedhpo: `space/client` must be the name of an option, got -1"],
    "-m tuner=fixed,null": ["fedhpo: `tuner` must be the name of an option, got fixed,null"],
    "-m report=abc search=none tuner=fixed": ["fedhpo: `report` must be true or false, got 'abc'."],
    "devices=[]": ["fedhpo: `devices` must be the name of an option, got []"],
    "trust=1e30": ["fedhpo: `trust` must be true or false, got 1e+30."],
}
SETTINGS = {
    "trainer.max_epochs=3": ["27 arms take at least 4 rounds", "Take trainer.max_epochs=4 search.budget=40, or fewer"],
    "trainer.max_epochs=9 search.budget=40": ["Take search.budget=81 or trainer.max_epochs=4, or fewer"],
    "search=hyperband trainer.max_epochs=100": [
        "fedhpo: trainer.max_epochs=100 is shorter than Hyperband, whose arms take 240 rounds",
        "set trainer.max_epochs=240",
        "or make the search shorter, search.max_rounds=26.",  # three brackets; with 27 rounds there are four
    ],
    "search=bayesian trainer.max_epochs=3": ["or make the search shorter, search.max_rounds=1 search.budget=30."],
    "fed.cohort=9 fed.evaluate_clients=9 trainer.overfit_batches=2 trainer.max_epochs=8 fed.retrain=2": [
        "fedhpo: 4 settings are wrong:",
        "\n- this Trainer does not fit",
        "\n  - overfit_batches=2",
        "limit_train_batches",
        "\n- `cohort` is 9",
        "\n- `evaluate_clients` must be from 1 to 8, the clients with examples; got 9",
        "is shorter than SuccessiveHalving",
        "set trainer.max_epochs=10 or more and search.max_rounds=8 ",
        "budget=42.",
    ],
    "fed.log_arms=some +tuner.confgs=3 +evaluate.client=3": [
        "fedhpo: 3 settings are wrong:",
        "\n- fed: `log_arms` must be a whole number or 'all', got 'some'",
        "\n- tuner: ",
        "unexpected keyword argument 'confgs'",
        "\n- `evaluate` has only `clients`, got client, too",
    ],
    "tuner=fedex space=none": ["the search and the tuner need a space, got none", "space=papers"],
    "space/client=[sgd,dropout]": ["hyperparameter 'dropout' reaches nothing in this run", "no dropout layer"],
    "folder=/dev/null/x": ["fedhpo: `folder` must be a folder that can be written to, got /dev/null/x: /dev/null is"],
    "checkpoint.dirpath=/dev/null/x": ["ModelCheckpoint(dirpath='/dev/null/x'): /dev/null is a file; choose a folder"],
    "threads=0 report={} explain=perhaps callbacks=true trainer.max_time=-1": [
        "\n- `threads` must be at least 1, got 0: null leaves torch its own number",
        "\n- `report` must be true or false, got {}.",
        "\n- `explain` must be true or false, got 'perhaps'",
        "\n- `callbacks` must be a section of sections",
        "\n- trainer: `max_time` must be a text, a",
    ],
    "+callbacks.x=5 trainer.benchmark=-1": [
        "\n- `callbacks.x` must be a section with a `_target_`, got 5",
        "\n- trainer: `benchmark` must be true, false or None, got -1.",
    ],
    "checkpoint.dirpath=5 trainer.accumulate_grad_batches=1.5": [
        "\n- `checkpoint.dirpath` must be a path, got 5",
        "`accumulate_grad_batches` must be a whole number, got 1.5.",
    ],
    "evaluate=null trainer.num_sanity_val_steps=[]": [
        "\n- `evaluate` must be a section with `clients`",
        "`num_sanity_val_steps` must be a whole number or None, got [].",
    ],
    "model.classes=2": ["fedhpo: client ", " failed before the first round", "Target 2 is out of bounds"],
    "model=lenet": ["LeNet takes images here", "got one of shape (", "synthetic_images"],
    "model=lstm": ["LSTM takes texts", "torch.float32"],
}
NO_CHECKPOINTS = {
    "cut.ckpt": "is cut off",
    "empty.ckpt": "is empty",
    "weights.ckpt": "holds weights only",
    "none.ckpt": "does not exist",
    "": "is a folder",
}


def refusal(folder: Path, *overrides: str, logger: str = "none") -> str:
    """Return what a run of these settings is refused with, in the words that Hydra prints."""
    with pytest.raises(CompactHydraException) as told:
        run.__wrapped__(composed(folder, *overrides, logger=logger))
    return str(told.value)


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_commands_are_answered_in_a_few_lines(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = answer(*command.split())
    assert code == 1
    assert all(part in said for part in COMMANDS[command]), said
    assert len(said.strip().splitlines()) < 20 and "Traceback" not in said, said


@pytest.mark.parametrize("settings", SETTINGS)
def test_wrong_settings_are_refused_in_the_words_of_the_command(tmp_path: Path, settings: str) -> None:
    said = refusal(tmp_path, *settings.split())
    assert all(part in said for part in SETTINGS[settings]) and len(said.splitlines()) < 20, said


@pytest.mark.parametrize("more", ["trainer.max_epochs=10 search.max_rounds=8", "search.max_rounds=6 search.budget=42"])
def test_what_is_advised_for_a_retraining_works(tmp_path: Path, more: str) -> None:
    train(composed(tmp_path, "explain=true", "trainer.max_epochs=8", "fed.retrain=2", *more.split()))


LOGGERS = {
    "csv logger.save_dir=/dev/null/x": "fedhpo: CSVLogger cannot be used: NotADirectoryError",
    "several logger.csv.save_dir=/dev/null/x logger.wandb.mode=disabled": "CSVLogger cannot be used: NotADir",
    "csv logger.save_dir=5": "fedhpo: logger: expected str, bytes or os.PathLike object, not int",
    "wandb logger.folder=/dev/null/x": "fedhpo: logger: `folder` must be a folder that can be written to",
    "mlflow logger.tracking_uri=foo://bar": "fedhpo: logger: ",
}


@pytest.mark.parametrize("settings", LOGGERS)
def test_loggers_that_cannot_write_say_so_in_one_line(tmp_path: Path, settings: str) -> None:
    if "mlflow" in settings:
        pytest.importorskip("mlflow")
    logger, *options = settings.split()
    assert LOGGERS[settings] in refusal(tmp_path, *PLAIN, *options, logger=logger)


@pytest.mark.parametrize("listens", [True, False])
def test_a_server_of_mlflow_that_does_not_answer_is_told_after_some_seconds(
    tmp_path: Path, listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    assert mlflow.ANSWER_SECONDS == 10
    monkeypatch.setattr(mlflow, "ANSWER_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = refusal(tmp_path, *PLAIN, f"logger.tracking_uri={address}", logger="mlflow")
    reason = "no answer in 0.5 seconds" if listens else "Connection refused"
    assert address in said and reason in said


def test_any_answer_of_a_server_of_mlflow_will_do() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # 501: it knows no GET
        threading.Thread(target=server.handle_request, daemon=True).start()
        mlflow.check_server(f"http://127.0.0.1:{server.server_port}")


def test_checkpoints_that_do_not_load_are_refused(whole: Whole, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    loads = (whole.folder / "checkpoints" / "last.ckpt").read_bytes()
    for name, content in {"last": loads, "cut": loads[:-100], "empty": b""}.items():
        (kept / f"{name}.ckpt").write_bytes(content)
    torch.save({"weight": torch.zeros(2)}, kept / "weights.ckpt")
    cfg = composed(tmp_path / "rest", *PLAIN)
    for name, fault in NO_CHECKPOINTS.items():
        cfg.ckpt_path = str(kept / name)
        with pytest.raises(CompactHydraException) as told:
            run.__wrapped__(cfg)
        assert f"{kept / name} {fault}: take {kept / 'last.ckpt'}, which loads." in str(told.value)
