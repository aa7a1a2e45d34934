"""Whole runs of ``fedhpo``, small ones: what they leave behind, how they end, and how they go on."""

import json
import os
import shlex
import time
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch import Callback
from omegaconf import DictConfig, OmegaConf

from lightning_fedhpo.cli.errors import readable
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.run.divergence import DivergedError
from tests.runs import PLAIN, answers, composed, fedhpo, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked

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


def test_what_a_run_leaves_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    summary = train(configured(tmp_path, "seed=3", logger="wandb"))
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert {"best", "test", "ledger", "arms", "seconds", "seed", "versions"} <= set(summary)
    assert summary["best"]["client"] == {"lr": 0.05, "batch_size": 16, "epochs": 3}
    assert set(summary["best"]["server"]) == {"lr", "momentum", "decay"}
    for kind in ("global", "personalized"):
        assert set(summary["test"][kind]) == {"test_loss", "test_acc", "test_error"}
    assert summary["ledger"]["rounds"] == 4 and summary["ledger"]["client_updates"] == 12
    assert summary["seed"] == 3 and summary["seconds"] > 0

    history, jobs = rows(tmp_path / "history.csv"), rows(tmp_path / "jobs.csv")
    assert [row["round"] for row in history] == ["0", "1", "2", "3"]
    assert len(jobs) == 12
    assert all(row["score_before"] and row["score_after"] for row in jobs)
    assert float(history[-1]["score"]) == summary["score"] == summary["arms"][0]["scores"][-1]

    config = OmegaConf.load(tmp_path / "config.yaml")
    assert config.seed == 3 and config.fed.seed == 3 and config.model.features == 5
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 1

    said = capsys.readouterr().out
    assert f"Everything is in {tmp_path}" in said and "wandb sync" in said
    assert "client  lr 0.05, batch_size 16, epochs 3" in said


def test_the_scores_of_the_best_checkpoint_and_of_the_history_agree(tmp_path: Path):
    train(configured(tmp_path))
    kept = torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)
    scores = [float(row["score"]) for row in rows(tmp_path / "history.csv")]
    assert kept["epoch"] == min(range(4), key=scores.__getitem__)


def test_the_last_checkpoint_is_of_the_last_round_and_the_best_of_the_best(tmp_path: Path):
    train(configured(tmp_path))
    scores = [float(row["score"]) for row in rows(tmp_path / "history.csv")]
    best = min(range(4), key=scores.__getitem__)
    assert best < 3
    kept = {name: torch.load(tmp_path / "checkpoints" / f"{name}.ckpt", weights_only=True) for name in ("best", "last")}
    assert (kept["best"]["epoch"], kept["last"]["epoch"]) == (best, 3)


@RISING
def test_what_the_last_checkpoint_knows_of_the_best_is_of_its_own_round(tmp_path: Path):
    train(configured(tmp_path, "trainer.max_epochs=2", "fed.mode=max"))
    scores = [float(row["score"]) for row in rows(tmp_path / "history.csv")]
    assert scores[1] > scores[0]
    last = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    (best,) = (state for key, state in last["callbacks"].items() if "'monitor': 'val_loss'" in key)
    assert float(best["best_model_score"]) == pytest.approx(scores[1])


def test_the_last_checkpoint_every_so_many_rounds(tmp_path: Path):
    train(configured(tmp_path, "last_checkpoint.every_n_epochs=3"))
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 2


def test_checkpoints_elsewhere_and_without_a_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    elsewhere = tmp_path / "elsewhere"
    fails = f"+callbacks.stop._target_={__name__}.Fails"
    with pytest.raises(ZeroDivisionError):
        train(configured(tmp_path, "fed.monitor=null", f"checkpoint.dirpath={elsewhere}", fails))
    assert {path.name for path in elsewhere.iterdir()} == {"best.ckpt", "last.ckpt", "interrupted.ckpt"}
    assert not (tmp_path / "checkpoints").exists()
    assert capsys.readouterr().out.splitlines()[-1] == f"  fedhpo ckpt_path={elsewhere / 'interrupted.ckpt'}"


def test_the_same_seed_is_the_same_run_and_another_is_another(tmp_path: Path):
    texts = []
    for number, seed in enumerate((0, 0, 1)):
        torch.rand(number)  # what was drawn before does not matter
        train(configured(tmp_path / str(number), f"seed={seed}"))
        texts.append((tmp_path / str(number) / "jobs.csv").read_bytes())
    assert texts[0] == texts[1] != texts[2]


@RESUMES
def test_resuming_gives_the_uninterrupted_run(tmp_path: Path):
    whole = train(configured(tmp_path / "whole"))
    train(configured(tmp_path / "first", "trainer.max_epochs=2"))
    last = tmp_path / "first" / "checkpoints" / "last.ckpt"
    rest = train(configured(tmp_path / "rest", f"ckpt_path={last}"))
    for name in ("history.csv", "jobs.csv"):
        assert (tmp_path / "rest" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert rest["test"] == whole["test"] and rest["ledger"] == whole["ledger"]
    assert rest["resumed_from"] == str(last) and whole["resumed_from"] is None


@RESUMES
def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cfg = configured(tmp_path, "executor=sequential", f"+callbacks.stop._target_={__name__}.Interrupts")
    with pytest.raises(SystemExit) as ended:
        train(cfg)
    assert ended.value.code
    command = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    assert command == ["fedhpo", f"ckpt_path={tmp_path / 'checkpoints' / 'interrupted.ckpt'}"]
    assert len(rows(tmp_path / "history.csv")) == 2 and (tmp_path / "config.yaml").is_file()

    rest, whole = tmp_path / "rest", tmp_path / "whole"
    train(configured(rest, "executor=sequential", command[1]))
    train(configured(whole, "executor=sequential"))
    assert (rest / "history.csv").read_bytes() == (whole / "history.csv").read_bytes()


@RISING
def test_a_full_disk_is_one_error_and_the_checkpoint_before_it_is_the_one_to_go_on_from(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
):
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    saved, synced = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: saved.append(file) or (full() if len(saved) > 3 else synced(file)))
    monkeypatch.setattr("lightning_fedhpo.cli.main.write_tables", full)
    with pytest.raises(OSError, match=r"No space left on device: this checkpoint was not written") as told:
        train(configured(tmp_path, "fed.mode=max"))  # both rounds are the best, and the second's last.ckpt fails
    assert readable(told.value) and told.value.__cause__ is None and told.value.__suppress_context__
    assert not [warning for warning in recwarn.list if "checkpoint" in str(warning.message)]
    kept = shlex.split(capsys.readouterr().out.splitlines()[-1])[1].removeprefix("ckpt_path=")
    assert torch.load(kept, weights_only=True)["epoch"] == 1 and Path(kept).name == "best.ckpt"
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 0
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


def test_a_run_that_fails_keeps_what_it_has(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        train(configured(tmp_path, f"+callbacks.stop._target_={__name__}.Fails"))
    assert len(rows(tmp_path / "history.csv")) == 2 and len(rows(tmp_path / "jobs.csv")) == 6
    assert (tmp_path / "config.yaml").is_file() and not (tmp_path / "summary.json").exists()


def test_a_broken_login_is_said_quickly_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_MODE", "online")
    began = time.monotonic()
    with pytest.warns(UserWarning, match="Weights & Biases: .*127.0.0.1:9 cannot be reached"):
        summary = train(configured(tmp_path, logger="wandb"))
    assert time.monotonic() - began < 15
    assert summary["ledger"]["rounds"] == 4


def test_several_loggers(tmp_path: Path):
    train(configured(tmp_path, "logger.wandb.mode=disabled", logger="several"))
    metrics = rows(tmp_path / "csv" / "metrics.csv")
    assert [float(row["round"]) for row in metrics] == [0, 1, 2, 3]


def test_no_checkpoints_no_test_examples_no_tuner(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    summary = train(configured(tmp_path, "checkpoint=null", "+data.fractions=[0.8,0.2,0.0]", "tuner=none"))
    assert summary["test"] is None
    assert "nothing was tested" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.parametrize(("clients", "count"), [("3", 3), ("[1,5]", 2), ("null", 8)])
def test_how_many_clients_are_tested(tmp_path: Path, clients: str, count: int):
    assert train(configured(tmp_path, f"evaluate.clients={clients}"))["test"]["clients"] == count


@pytest.mark.parametrize("count", ["0", "-1", "1.5", "many", "true", "1000000"])
def test_threads_are_a_number(count: str, tmp_path: Path):
    with pytest.raises((TypeError, ValueError), match="`threads` must be"):
        train(configured(tmp_path, f"threads={count}"))


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"])
def test_one_process_writes_its_files_whatever_number_a_launcher_gave_it(name: str, tmp_path: Path):
    done = fedhpo(*PLAIN, "logger=none", f"hydra.run.dir={tmp_path / 'run'}", cwd=tmp_path, **{name: "1"})
    assert done.returncode == 0, done.stderr
    assert "executor: jobs run side by side" in done.stdout and "Everything is in" in done.stdout
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.yaml", "history.csv", "jobs.csv", "summary.json"} <= left


def test_ctrl_c_in_the_final_test_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning_fedhpo.cli.main.evaluated", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(configured(tmp_path, "executor=sequential"))
    said = capsys.readouterr().out.strip().splitlines()
    assert said[-2:] == ["Interrupted. To go on:", f"  fedhpo ckpt_path={tmp_path / 'checkpoints' / 'last.ckpt'}"]
    assert (tmp_path / "history.csv").is_file()


def test_what_runs_the_jobs_is_said_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    summary = train(configured(tmp_path, "executor=sequential"))
    assert summary["executor"] == "jobs run one after another, as asked for"
    assert capsys.readouterr().out.splitlines()[0] == f"executor: {summary['executor']}."
    summary = train(configured(tmp_path / "other", "+trainer.gradient_clip_val=1"))
    assert "a training step is no plain one: gradient clipping" in summary["executor"]


def test_threads_are_put_back(tmp_path: Path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(configured(tmp_path, "threads=1"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_early_stopping_by_a_callback_of_the_users(tmp_path: Path):
    stop = "{_target_:lightning.pytorch.callbacks.EarlyStopping,monitor:val_loss,patience:0,min_delta:100.0}"
    assert train(configured(tmp_path, f"+callbacks.stop={stop}"))["ledger"]["rounds"] == 2


def test_a_run_that_never_trains_has_no_summary(tmp_path: Path):
    with pytest.raises(DivergedError, match="the rate is at fault"), pytest.warns(UserWarning, match="not finite"):
        train(configured(tmp_path, "tuner.client.lr=1e30"))
    assert not (tmp_path / "summary.json").exists()


def test_which_errors_are_told_in_one_line(tmp_path: Path):
    def error_of(*overrides: str) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what is asked
            train(configured(tmp_path, *overrides))
        return caught.value

    assert readable(error_of("algorithm.lr=0"))
    assert readable(error_of("fed.cohort=9"))
    assert readable(error_of("ckpt_path=nowhere.ckpt"))
    assert readable(error_of("+trainer.overfit_batches=2"))
    assert readable(error_of("data=synthetic_images", "~data.features", "model.features=5"))
    cfg = configured(tmp_path)
    partition = {"_target_": "lightning_fedhpo.Iid", "clients": 2}
    cfg.data = {"_target_": "lightning_fedhpo.data.mnist", "path": "nowhere", "partition": partition}
    with pytest.raises(FileNotFoundError, match="`path` must be an .npz file, or a folder") as missing:
        train(cfg)
    assert readable(missing.value)
    assert not readable(error_of(f"+callbacks.stop._target_={__name__}.Fails"))
    assert not readable(ValueError("raised by nobody"))


def test_the_command(tmp_path: Path):
    done = fedhpo("-m", *PLAIN, "seed=0,1", "logger=none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folders = sorted(path.parent for path in tmp_path.glob("multirun/*/*/*/summary.json"))
    assert [folder.name for folder in folders] == ["0", "1"]
    assert [json.loads((folder / "summary.json").read_text())["seed"] for folder in folders] == [0, 1]
    assert done.stdout.count("Everything is in") == 2
    assert "GPU available" not in done.stderr + done.stdout


WRONG = {
    "algorithm.lr=0": ["fedhpo: algorithm: the server's `lr` must be above 0, got 0"],
    "trainer.max_epochs=5": ["27 arms at first", "a budget of at least 41", "raise max_rounds"],
    "search=hyperband trainer.max_epochs=100": ["whose arms take 240 rounds: set max_epochs=240 or more"],
    "tuner=fedx": ["Could not find 'tuner/fedx'", "fedex", "multiplicative"],
    "space/client=[sgdd]": ["Could not load 'space/client/sgdd'"],
    "tuner.confgs=3": ["Key 'confgs' is not in struct", "full_key: tuner.confgs"],
    "tunr=fedex": ["Could not override 'tunr'"],
    "+tuner.confgs=3": ["fedhpo: tuner: ", "unexpected keyword argument 'confgs'"],
    "tuner=fedex space=none": ["the search and the tuner need a space, got none", "space=papers"],
    "search=none tuner=fedex space=none": ["the tuner needs a space, got none", "take tuner=none"],
    "space/client=[sgd,dropout]": ["hyperparameter 'dropout' reaches nothing in this run", "no dropout layer"],
    "seed=abc": ["fedhpo: `seed` must be a whole number, got 'abc'"],
    "threads=1.5": ["fedhpo: `threads` must be a whole number, got 1.5"],
    "folder=/dev/null/x": ["fedhpo: `folder` must be a folder that can be written to, got /dev/null/x: /dev/null is"],
    "hydra.run.dir=/dev/null/x": ["fedhpo: `hydra.run.dir` must be a folder that can be", "/dev/null is a file"],
    "-m seed=0,1 hydra.sweep.dir=/dev/null/x": ["fedhpo: `hydra.sweep.dir` must be a folder", "/dev/null is a file"],
    "checkpoint.dirpath=5": ["fedhpo: `checkpoint.dirpath` must be a path, got 5"],
    "checkpoint.dirpath=/dev/null/x": ["ModelCheckpoint(dirpath='/dev/null/x'): /dev/null is a file; choose a folder"],
    "evaluate.clients=9": ["fedhpo: `evaluate.clients` must be from 1 to 8, the clients with examples; got 9"],
    "evaluate.clients=[1,99]": ["fedhpo: `evaluate.clients` must be clients with examples, but [99] have none"],
    "fed.evaluate_clients=9": ["fedhpo: `evaluate_clients` must be from 1 to 8, the clients with examples; got 9"],
    "tuner=null": ["fedhpo: `tuner` must be the name of an option, got null: `fedhpo --help` lists them, none"],
    "model.classes=2": ["fedhpo: client ", " failed before the first round", "Target 2 is out of bounds"],
    "fed.log_arms=some": ["fed: `log_arms` must be one of 'best', 'all', got 'some'"],
}


def test_wrong_settings_are_answered_in_a_few_lines(tmp_path: Path):
    told = answers(*(command.split() for command in WRONG), cwd=tmp_path)
    for (command, expected), (code, said) in zip(WRONG.items(), told, strict=True):
        assert code == 1, command
        assert all(part in said for part in expected), said
        assert len(said.strip().splitlines()) < 20 and "Traceback" not in said, said


def test_a_checkpoint_that_is_none_is_answered_in_a_line(tmp_path: Path):
    train(configured(tmp_path / "run"))
    kept = tmp_path / "run" / "checkpoints"
    whole = (kept / "last.ckpt").read_bytes()
    (kept / "cut.ckpt").write_bytes(whole[:-100])
    (kept / "empty.ckpt").touch()
    (kept / "text.ckpt").write_text("none")
    torch.save({"weight": torch.zeros(2)}, kept / "weights.ckpt")
    told = {
        "cut.ckpt": "is cut off",
        "empty.ckpt": "is empty",
        "text.ckpt": "is no checkpoint",
        "weights.ckpt": "holds weights only",
        "none.ckpt": "does not exist",
        "": "is a folder",
    }
    commands = ([*PLAIN, f"ckpt_path={kept / name}", f"hydra.run.dir={tmp_path / 'rest'}"] for name in told)
    for (name, what), (code, said) in zip(told.items(), answers(*commands, cwd=tmp_path), strict=True):
        (line,) = (line for line in said.splitlines() if line.startswith("fedhpo:"))
        assert code == 1 and "Traceback" not in said, said
        assert f"{kept / name} {what}: take {kept / 'last.ckpt'}, which loads." in line


def test_the_whole_trace_on_request(tmp_path: Path):
    assert "Traceback" in fedhpo("algorithm.lr=0", cwd=tmp_path, HYDRA_FULL_ERROR="1").stderr
