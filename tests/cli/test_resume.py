"""Going on: the printed command as it is typed, a run's settings beside its checkpoint, sweeps that have stopped."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from lightning_fedhpo.arms.state_files import named
from lightning_fedhpo.cli.compare import main as compare
from lightning_fedhpo.cli.resume import from_newest, quoted
from tests.runs import PLAIN, SMALL, call, quiet_surroundings, rows  # noqa: F401 - the fixture is used unasked

TYPED = [*SMALL, *PLAIN, "executor=sequential", "logger=none", "report=false"]
MODULE = """
from pathlib import Path
from lightning.pytorch import Callback

class Stops(Callback):
    '''Ends the first run that comes to its third round, with Ctrl-C or an error.'''
    def __init__(self, marker, how="KeyboardInterrupt"):
        self.marker, self.how = Path(marker), how
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 2 and not self.marker.exists():
            self.marker.touch()
            raise {"KeyboardInterrupt": KeyboardInterrupt, "OSError": OSError}[self.how]("no luck")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module and options of its own, whose name shells and Hydra have to be told about."""
    folder = tmp_path / "it's a, b=c"
    (folder / "conf" / "callbacks").mkdir(parents=True)
    (folder / "stops.py").write_text(MODULE)
    (folder / "conf" / "callbacks" / "stops.yaml").write_text("own:\n  _target_: stops.Stops\n  marker: stopped\n")
    monkeypatch.chdir(folder)
    return folder


def test_the_printed_command_goes_on_in_the_same_folder_from_anywhere(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--config-dir", "conf", "+callbacks=stops", "seed=3", *TYPED]
    assert call(*options)[0] == 1
    printed = capsys.readouterr().out.splitlines()[-1]
    (folder,) = (project / "outputs").glob("*/*")
    assert shlex.split(printed)[:1] == ["fedhpo"] and len(shlex.split(printed)) == 2, "the settings lie beside"
    began = (folder / ".hydra" / "overrides.yaml").read_bytes()

    monkeypatch.chdir(tmp_path)
    asked, told = call(*shlex.split(printed)[1:], "threads=2")
    assert asked == 1 and "builds stops.Stops\n" in told and f"has --config-dir={project / 'conf'}\n" in told
    assert call(*shlex.split(printed)[1:], "threads=2", "trust=true") == (None, "")
    assert len(list((project / "outputs").glob("*/*"))) == 1 and not (tmp_path / "outputs").exists()
    assert (folder / ".hydra" / "overrides.yaml").read_bytes() == began
    monkeypatch.chdir(project)
    assert call(*options, "hydra.run.dir=whole") == (None, ""), "stopped once, so this one is whole"
    assert (folder / "jobs.csv").read_bytes() == (project / "whole" / "jobs.csv").read_bytes()

    refused = call(f"ckpt_path={(folder / 'checkpoints' / 'last.ckpt').relative_to(project)!s}", "fed.cohort=2")
    assert refused[0] == 1 and "cohort: 3 there, 2 here" in refused[1]


def test_a_command_is_whole_where_no_settings_lie_beside(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = f"checkpoint.dirpath={tmp_path / 'kept'}"
    assert call("--config-dir", "conf", "+callbacks=stops", elsewhere, *TYPED)[0] == 1
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert {f"--config-dir={project / 'conf'}", "+callbacks=stops", elsewhere}.issubset(command)
    assert call(*command[1:]) == (None, "")
    (folder,) = (project / "outputs").glob("*/*")
    assert [row["round"] for row in rows(folder / "history.csv")] == ["0", "1", "2", "3"]


def test_a_sweep_goes_on_with_the_runs_that_are_not_finished(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stops = ["+callbacks.own._target_=stops.Stops", "+callbacks.own.marker=stopped", "+callbacks.own.how=OSError"]
    sweep = project / "sweep"
    where = "hydra.sweep.dir=sweep"
    code, said = call("-m", where, "seed=0,1,2", *stops, *TYPED)
    assert code == 1 and "no luck" in said
    for name in ("history.csv", "summary.json"):  # the last one has not come to its turn
        (sweep / "2" / name).unlink()
    (sweep / "2" / ".hydra" / "hydra.yaml").unlink()
    summary = (sweep / "1" / "summary.json").read_bytes()
    capsys.readouterr()

    assert compare([str(sweep)]) == 0
    out = capsys.readouterr().out
    table, told = out.split("Missing runs: 2\n")
    assert "seeds" in table
    failed, left, _, command = told.splitlines()[:4]
    assert failed.split()[0] == "0" and failed.endswith("failed: OSError: no luck") and "seed=0" in failed
    assert left.split()[0] == "-" and "seed=2" in left and left.endswith("not begun")

    for wrong, message in {
        f"-m {where} resume=true seed=0,1": "there seed=0,1,2, here seed=0,1",
        "-m resume=true": "`resume=true` needs the folder to go on in: add hydra.sweep.dir=<folder>",
        "resume=true": "add hydra.run.dir=<folder>",
    }.items():
        code, said = call(*wrong.split())
        assert code == 1 and message in said, said

    assert call(*shlex.split(command)[1:]) == (None, "")
    out = capsys.readouterr().out
    assert out.count("finished before: ") == 1
    assert shlex.split(out.splitlines()[-1]) == ["Compare", "the", "runs:", "fedhpo-compare", str(sweep)]
    assert (sweep / "1" / "summary.json").read_bytes() == summary
    assert len(rows(sweep / "0" / "history.csv")) == 4
    assert not (sweep / "0" / "failed.txt").exists()
    assert compare([str(sweep)]) == 0
    assert "Missing" not in capsys.readouterr().out


EVIL = {
    "callbacks.x._target_": ("+callbacks.x._target_=evil.C", "builds evil.C"),
    "another package's name below ours": ("+callbacks.x={_target_:torch.os.system}", "builds torch.os.system"),
    "a sweep": ("+callbacks.x._target_=evil.C,evil.D", "builds evil.D"),
    "an option of its own": ("+callbacks=x", "builds evil.C"),
    "a setting of Hydra": ("hydra.job_logging.handlers.x={'()':evil.C}", "has hydra.job_logging.handlers.x="),
}
"""What a stranger's folder brings, and what is shown of it."""


@pytest.mark.parametrize("trick", EVIL)
def test_a_folder_that_others_have_written_is_data(tmp_path: Path, trick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    override, shown = EVIL[trick]
    theirs, run = tmp_path / "theirs", tmp_path / "theirs" / "run"
    for name, content in {
        "evil.py": "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nC = D = object\n",
        "conf/callbacks/x.yaml": "x:\n  _target_: evil.C\n",
        "run/checkpoints/best.ckpt": "",
    }.items():
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text(content)
    sources = [{"provider": "main", "schema": "pkg", "path": "lightning_fedhpo.conf"}]
    if override == "+callbacks=x":
        sources.append({"provider": "command-line", "schema": "file", "path": str(theirs / "conf")})
    record: dict[str, Any] = {"runtime": {"cwd": str(theirs), "config_sources": sources}}
    record |= {"job": {"config_name": "config"}, "overrides": {"hydra": [], "task": [*TYPED, override]}}
    (run / ".hydra").mkdir()
    monkeypatch.chdir(tmp_path)
    several = ["-m", f"hydra.sweep.dir={run}", "resume=true"]
    for began in (str(theirs), "${oc.env:PWD}"):
        record["runtime"]["cwd"] = began
        for path in (run / ".hydra" / "hydra.yaml", run / "multirun.yaml"):
            OmegaConf.save({"hydra": record}, path)
        monkeypatch.setenv("PWD", str(tmp_path))
        for command in (several, [f"hydra.run.dir={run}", "resume=true"], [f"ckpt_path={run}/checkpoints/best.ckpt"]):
            code, told = call(*command)
            assert code == 1 and shown in told and "trust=true" in told, told
            assert ("imports modules from " + str(theirs) in told) == (began == str(theirs))
    assert not (theirs / "ran").exists() and Path.cwd() == tmp_path


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def test_a_resume_says_where_it_begins_if_not_at_the_last_checkpoint(project: Path) -> None:
    assert call("hydra.run.dir=run", *TYPED) == (None, "")
    run, cfg = project / "run", OmegaConf.create({"ckpt_path": None, "folder": str(project / "run")})
    best, last = (run / "checkpoints" / f"{name}.ckpt" for name in ("best", "last"))

    def found() -> tuple[str | None, list[str]]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            return from_newest(cfg, run / "checkpoints").ckpt_path, [str(one.message) for one in told]

    assert found() == (str(last), [])
    _cut(last)
    assert found() == (str(best), [f"resume=true goes on from {best}: last.ckpt is cut off."])
    _cut(best)
    anew = f"resume=true begins {run} anew, at round 1: "
    faults = "best.ckpt is cut off; last.ckpt is cut off"
    assert found() == (None, [f"{anew}none of its checkpoints can be resumed from ({faults})."])
    best.unlink()
    last.unlink()
    assert found() == (None, [f"{anew}it has no checkpoint."])
    (run / "config.yaml").unlink()
    assert found() == (None, []), "it had not begun"


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("summary.json", [b'{"score": 0.1, "ledg', b"[]", b"\xff\xfe"]),
        (".hydra/hydra.yaml", [b"hydra:\n  run: [\n", b"hydra:\n  run: 1\n", b"", b"\xff\xfe\x00"]),
    ],
)
def test_a_damaged_record_of_a_run_is_one_sentence(name: str, contents: list[bytes], project: Path) -> None:
    record = project / "run" / name
    (project / "run" / ".hydra").mkdir(parents=True)
    for content in contents:
        record.write_bytes(content)
        code, said = call("hydra.run.dir=run", "resume=true", *TYPED)
        assert code == 1 and said.count("fedhpo: ") == 1 and "Traceback" not in said, said
        assert str(record) in said and "cannot be read" in said and "bring it back, or remove it" in said
        assert record.read_bytes() == content
    record.unlink()
    assert call("hydra.run.dir=run", "resume=true", *TYPED)[0] is None, "the way out is one"


def test_a_run_that_is_over_has_the_states_that_its_checkpoints_need(project: Path) -> None:
    """Also those of processes before it, but not what a kill has left of them."""
    kept = ["algorithm=scaffold", "fed.client_memory=0", "hydra.run.dir=run"]
    assert call("+callbacks.own._target_=stops.Stops", "+callbacks.own.marker=stopped", *kept, *TYPED)[0] == 1
    states, run = project / "run" / "client_states", project / "run"
    (before,) = states.iterdir()
    (before / f"{'0' * 64}.pt").touch()
    (before / f"{'1' * 64}.tmp").touch()
    assert call(f"ckpt_path={quoted(run / 'checkpoints' / 'interrupted.ckpt')}") == (None, "")
    needed: set[str] = set()
    for path in (run / "checkpoints").iterdir():
        needed |= named(torch.load(path, weights_only=True))
    assert {path.relative_to(run).as_posix() for path in states.glob("*/*")} == needed
    assert {Path(name).parent.name for name in needed} > {before.name}, (
        "interrupted.ckpt has those of the first process"
    )
