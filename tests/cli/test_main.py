"""Whole runs of ``fedhpo``, small ones: what they leave behind, how they end, and how they go on."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import Callback
from omegaconf import DictConfig, OmegaConf

from lightning_fedhpo.cli.errors import readable
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.run.divergence import DivergedError
from tests.runs import (  # noqa: F401 - the fixture is used unasked
    PLAIN,
    SEARCHED,
    Whole,
    call,
    composed,
    process,
    quiet_surroundings,
    rows,
    small,
)

# A run goes on in a folder of its own, and Lightning says what that means for its choice of the best checkpoint.
RESUMES = pytest.mark.filterwarnings("ignore:The dirpath has changed:UserWarning")
# With mode="max" the second round's loss, which is the larger one, is the best score.
RISING = pytest.mark.filterwarnings("ignore:mode='max' prefers large values of 'val_loss':UserWarning")


class Interrupts(Callback):
    """Is Ctrl-C in the second job of the third round."""

    def on_train_batch_start(self, trainer: lightning.Trainer, *arguments: object) -> None:
        if trainer.current_epoch == 2 and trainer.fit_loop.epoch_loop.batch_idx == 1:
            raise KeyboardInterrupt


class Fails(Callback):
    """Is an error of somebody else's after the second round."""

    def on_train_epoch_end(self, trainer: lightning.Trainer, *arguments: object) -> None:
        if trainer.current_epoch == 1:
            raise ZeroDivisionError("of somebody else's")


def configured(folder: Path, *overrides: str, logger: str = "none") -> DictConfig:
    return composed(folder, *PLAIN, *overrides, logger=logger)


def callback(kind: type[Callback]) -> str:
    return f"+callbacks.own._target_={__name__}.{kind.__name__}"


def checkpoint(folder: Path, name: str) -> dict[str, Any]:
    return torch.load(folder / f"{name}.ckpt", weights_only=True)


def test_what_a_run_leaves_behind(whole: Whole) -> None:
    folder, summary, said = whole
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert {"best", "test", "ledger", "arms", "seconds", "seed", "versions"} <= set(summary)
    assert summary["best"]["client"] == {"lr": 0.05, "batch_size": 16, "epochs": 3}
    assert set(summary["best"]["server"]) == {"lr", "momentum", "decay"}
    for kind in ("global", "personalized"):
        assert set(summary["test"][kind]) == {"test_loss", "test_acc", "test_error"}
    assert summary["test"]["clients"] == 8 and summary["seed"] == 3 and summary["seconds"] > 0
    assert summary["ledger"]["rounds"] == 4 and summary["ledger"]["client_updates"] == 12

    history, jobs = rows(folder / "history.csv"), rows(folder / "jobs.csv")
    assert [row["round"] for row in history] == ["0", "1", "2", "3"]
    assert len(jobs) == 12 and all(row["score_before"] and row["score_after"] for row in jobs)
    assert float(history[-1]["score"]) == summary["score"] == summary["arms"][0]["scores"][-1]
    config = OmegaConf.load(folder / "config.yaml")
    assert config.seed == 3 and config.fed.seed == 3 and config.model.features == 5
    assert len(list(folder.glob("wandb/offline-run-*/*.wandb"))) == 1

    assert (
        said.splitlines()[0]
        == f"executor: {summary['executor']}."
        == "executor: jobs run one after another, as asked for; on 1 thread, as steps are small."
    )
    assert f"Everything is in {folder}" in said and "wandb sync" in said
    assert "client  lr 0.05, batch_size 16, epochs 3" in said


def test_checkpoints_are_of_the_best_and_of_the_last_round(whole: Whole) -> None:
    kept = whole.folder / "checkpoints"
    assert {path.name for path in kept.iterdir()} == {"best.ckpt", "last.ckpt"}
    scores = [float(row["score"]) for row in rows(whole.folder / "history.csv")]
    assert checkpoint(kept, "best")["epoch"] == min(range(4), key=scores.__getitem__)
    assert checkpoint(kept, "last")["epoch"] == 3


@RISING
def test_the_last_checkpoint_knows_the_best_score_of_its_own_round(tmp_path: Path) -> None:
    train(configured(tmp_path, "trainer.max_epochs=2", "fed.mode=max"))
    scores = [float(row["score"]) for row in rows(tmp_path / "history.csv")]
    assert scores[1] > scores[0]
    states = checkpoint(tmp_path / "checkpoints", "last")["callbacks"]
    (best,) = (state for key, state in states.items() if "'monitor': 'val_loss'" in key)
    assert float(best["best_model_score"]) == pytest.approx(scores[1])


def test_the_same_seed_is_the_same_run_and_another_is_another(whole: Whole, tmp_path: Path) -> None:
    torch.rand(3)  # what was drawn before does not matter
    for seed in (3, 4):
        train(configured(tmp_path / str(seed), f"seed={seed}"))
    first, same, other = (
        (folder / "jobs.csv").read_bytes() for folder in (whole.folder, tmp_path / "3", tmp_path / "4")
    )
    assert first == same != other


@RESUMES
def test_resuming_gives_the_uninterrupted_run(whole: Whole, tmp_path: Path) -> None:
    train(configured(tmp_path / "first", "trainer.max_epochs=2", "seed=3"))
    last = tmp_path / "first" / "checkpoints" / "last.ckpt"
    rest = train(configured(tmp_path / "rest", f"ckpt_path={last}", "seed=3"))
    for name in ("history.csv", "jobs.csv"):
        assert (tmp_path / "rest" / name).read_bytes() == (whole.folder / name).read_bytes()
    assert rest["test"] == whole.summary["test"] and rest["ledger"] == whole.summary["ledger"]
    assert rest["resumed_from"] == str(last) and whole.summary["resumed_from"] is None


@RESUMES
def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(
    whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        train(configured(tmp_path, "seed=3", callback(Interrupts)))
    assert ended.value.code
    command = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    assert command == ["fedhpo", f"ckpt_path={tmp_path / 'checkpoints' / 'interrupted.ckpt'}"]
    assert len(rows(tmp_path / "history.csv")) == 2 and (tmp_path / "config.yaml").is_file()
    train(configured(tmp_path / "rest", "seed=3", command[1]))
    assert (tmp_path / "rest" / "history.csv").read_bytes() == (whole.folder / "history.csv").read_bytes()


def test_ctrl_c_in_the_final_test_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning_fedhpo.loop.FederatedLoop.evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(configured(tmp_path))
    said = capsys.readouterr().out.strip().splitlines()
    assert said[-2:] == ["Interrupted. To go on:", f"  fedhpo ckpt_path={tmp_path / 'checkpoints' / 'last.ckpt'}"]
    assert (tmp_path / "history.csv").is_file()


def test_a_run_that_fails_keeps_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(ZeroDivisionError) as told:
        train(configured(tmp_path, "fed.monitor=null", f"checkpoint.dirpath={elsewhere}", callback(Fails)))
    assert not readable(told.value), "somebody else's error has its traceback"
    assert len(rows(tmp_path / "history.csv")) == 2 and len(rows(tmp_path / "jobs.csv")) == 6
    assert (tmp_path / "config.yaml").is_file() and not (tmp_path / "summary.json").exists()
    assert {path.name for path in elsewhere.iterdir()} == {"best.ckpt", "last.ckpt", "interrupted.ckpt"}
    assert not (tmp_path / "checkpoints").exists()
    assert capsys.readouterr().out.splitlines()[-1] == f"  fedhpo ckpt_path={elsewhere / 'interrupted.ckpt'}"


@RISING
def test_a_full_disk_is_one_error_and_the_checkpoint_before_it_is_the_one_to_go_on_from(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    saved, synced = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: saved.append(file) or (full() if len(saved) > 3 else synced(file)))
    monkeypatch.setattr("lightning_fedhpo.cli.main.write_tables", full)
    with pytest.raises(OSError, match=r"No space left on device: this checkpoint was not written") as told:
        train(configured(tmp_path, "fed.mode=max"))  # both rounds are the best, and the second's last.ckpt fails
    assert readable(told.value) and told.value.__cause__ is None and told.value.__suppress_context__
    assert not [warning for warning in recwarn.list if "checkpoint" in str(warning.message)]
    kept = Path(shlex.split(capsys.readouterr().out.splitlines()[-1])[1].removeprefix("ckpt_path="))
    assert kept.name == "best.ckpt" and checkpoint(kept.parent, "best")["epoch"] == 1
    assert checkpoint(kept.parent, "last")["epoch"] == 0
    assert {path.name for path in kept.parent.iterdir()} == {"best.ckpt", "last.ckpt"}


def test_options_of_a_run(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    options = ["last_checkpoint.every_n_epochs=3", "evaluate.clients=[1,5]", f"threads={threads + 1}"]
    summary = train(configured(tmp_path, *options, "logger.wandb.mode=disabled", logger="several"))
    assert checkpoint(tmp_path / "checkpoints", "last")["epoch"] == 2
    assert summary["test"]["clients"] == 2
    assert [float(row["round"]) for row in rows(tmp_path / "csv" / "metrics.csv")] == [0, 1, 2, 3]
    assert torch.get_num_threads() == threads


def test_no_checkpoints_no_test_examples_no_tuner_and_an_early_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = "{_target_:lightning.pytorch.callbacks.EarlyStopping,monitor:val_loss,patience:0,min_delta:100.0}"
    left_out = ["checkpoint=null", "data.fractions=[0.8,0.2,0.0]", "tuner=none"]
    summary = train(configured(tmp_path, *left_out, f"+callbacks.stop={stop}"))
    assert summary["test"] is None and summary["ledger"]["rounds"] == 2
    assert "nothing was tested" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.ckpt"))


def test_what_fixed_sets_is_pinned_and_the_search_draws_the_rest(tmp_path: Path) -> None:
    summary = train(composed(tmp_path, "tuner=fixed", "+tuner.server.momentum=0.5", *SEARCHED))
    assert len(summary["arms"]) == 3 and summary["ledger"]["rounds"] == 12
    for arm in summary["arms"]:
        assert arm["client"].items() >= {"lr": 0.05, "batch_size": 16, "epochs": 3}.items()
        assert arm["server"]["momentum"] == 0.5
    for side, names in {"client": ("momentum", "weight_decay"), "server": ("lr", "decay")}.items():
        assert all(len({arm[side][name] for arm in summary["arms"]}) == 3 for name in names)
    for row in rows(tmp_path / "jobs.csv"):  # what was really used
        drawn = summary["arms"][int(row["arm"])]["client"]
        assert {name: float(row[name]) for name in drawn} == {name: float(value) for name, value in drawn.items()}


CHATTY = """
import warnings
from lightning.pytorch import Callback
from lightning.pytorch.utilities.rank_zero import rank_zero_info

class Chatty(Callback):
    def on_fit_start(self, trainer, module):
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated, use another", FutureWarning)
        rank_zero_info("Tip: For seamless cloud logging, try installing another package")
"""


def test_one_process_writes_its_files_whatever_number_a_launcher_gave_it(tmp_path: Path) -> None:
    number = {"SLURM_PROCID": "1", "NODE_RANK": "1"}
    (tmp_path / "chatty.py").write_text(CHATTY)
    run = [*PLAIN, "logger=none", f"hydra.run.dir={tmp_path / 'run'}", "+callbacks.own._target_=chatty.Chatty"]
    done = process(
        "-W", "default::FutureWarning", "-m", "lightning_fedhpo.cli.main", *small(run), cwd=tmp_path, **number
    )
    assert done.returncode == 0, done.stderr
    assert "executor: jobs run one after another" in done.stdout and "Everything is in" in done.stdout
    assert "LeafSpec" not in done.stderr and "Tip" not in done.stderr + done.stdout, "what others say is not ours"
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.yaml", "history.csv", "jobs.csv", "summary.json"} <= left


def test_a_run_that_never_trains_has_no_summary(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="the rate is at fault"), pytest.warns(UserWarning, match="not finite"):
        train(configured(tmp_path, "tuner.client.lr=1e30"))
    assert not (tmp_path / "summary.json").exists()


def test_what_was_found_trains_a_plain_run(tmp_path: Path) -> None:
    best = train(composed(tmp_path / "a", "tuner=none", *SEARCHED))["best"]
    file, folder = tmp_path / "a" / "best.yaml", tmp_path / "b"
    typed = ["tuner=fixed", f"tuner.file={file}", "trainer.max_epochs=2", "logger=none", f"hydra.run.dir={folder}"]
    assert call(*small(typed))[0] is None
    assert json.loads((folder / "summary.json").read_text())["best"] == best
    assert {float(row["lr"]) for row in rows(folder / "jobs.csv")} == {best["client"]["lr"]}
    settings = OmegaConf.load(folder / "config.yaml")
    assert settings.search is None and settings.tuner.client == {}
    code, said = call(*small([*typed, "tuner.client.lr=0.1"]))
    assert code == 1 and "Fixed takes values or a file that has all of them" in said


def test_explain_trains_nothing_and_leaves_no_files_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sweep"
    run = ["explain=true", *SEARCHED, f"hydra.sweep.dir={folder}", "seed=0,1"]
    assert call("-m", *small(run), "logger=csv") == (None, "")
    said = capsys.readouterr().out
    assert said.count("FedEx in SuccessiveHalving with FedAvg: 3 of 8 clients a round") == 2
    assert said.count("3 for 3 rounds, then 1 for 3 rounds") == 2 and "36 client updates" in said
    assert "fedhpo-compare" not in said
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    assert left <= {"multirun.yaml", "config.yaml", "hydra.yaml", "overrides.yaml", "fedhpo.log"}
    assert not (folder / "0" / "config.yaml").exists()
