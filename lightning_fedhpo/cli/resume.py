"""Going on with a run or a sweep: the settings that it began with, and the command to type."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from hydra.types import RunMode
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from omegaconf import DictConfig, OmegaConf

from lightning_fedhpo.cli.trust import check_trusted
from lightning_fedhpo.run.checkpoint_file import SUFFIX, fault, newest, sweep_states
from lightning_fedhpo.tracking.run_files import CONFIG, RUN_RECORD, SUMMARY, SWEEP_RECORD

NOT_OURS = "was not written by a federated run that can go on here"
_FOLDERS = {"hydra.run.dir": RUN_RECORD, "hydra.sweep.dir": SWEEP_RECORD}
_OF_ONE_CALL = {"ckpt_path", "resume", "trust", "hydra.mode", "hydra.output_subdir", *_FOLDERS}


# ---------------------------------------------------------------------- before Hydra


def with_recorded_settings(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments, with the settings of the run or sweep that it goes on with.

    What the command says itself is on top. The process moves to the folder where the run began, so that the relative
    paths among its settings hold: if that is another folder than the present one, the command has to say
    ``trust=true``.
    """
    several = not {"-m", "--multirun"}.isdisjoint(arguments)
    overrides = [one for one in arguments if "=" in one and one[0] != "-"]
    given = {key_of(one): one for one in overrides}
    folder, record = _folder_and_record(given, several)
    if folder is None or not record.is_file():
        return list(arguments)
    hydra = recorded(record)
    begun = arguments_of(hydra)
    if value_of(given.get("trust", "trust=false")) is not True:
        began = OmegaConf.to_container(hydra.runtime, resolve=False)  # an interpolation could name the present folder
        check_trusted(folder, str(began["cwd"]), begun)  # type: ignore[index,call-overload]  # a section
    paths = {name: quoted(Path(value).absolute()) for name in given if (value := _path(given, name))}
    own = {name: f"{name}={paths[name]}" if name in paths else one for name, one in given.items()}
    if "ckpt_path" in given and "hydra.run.dir" not in given:  # Hydra leaves what it wrote about the beginning
        own |= {"hydra.run.dir": f"hydra.run.dir={quoted(folder)}", "hydra.output_subdir": "hydra.output_subdir=null"}
    if Path(hydra.runtime.cwd).is_dir():
        os.chdir(hydra.runtime.cwd)
    options = [one for one in begun if one[0] == "-"] + [one for one in arguments if one not in overrides]
    return [*options, *(own.pop(key_of(one), one) for one in begun if one[0] != "-"), *own.values()]


def _folder_and_record(given: Mapping[str, str], several: bool) -> tuple[Path | None, Path]:
    """Return the folder that a command goes on in, and Hydra's record of how it began."""
    if "ckpt_path" in given and not several:
        checkpoint = _path(given, "ckpt_path")
        folder = run_of(Path(checkpoint)) if checkpoint else None
    elif value_of(given.get("resume", "resume=false")) is True:
        name = "hydra.sweep.dir" if several else "hydra.run.dir"
        chosen = _path(given, name)
        folder = Path(chosen).absolute() if chosen else None
    else:
        folder = None
    return folder, (folder or Path()) / (SWEEP_RECORD if several else RUN_RECORD)


def recorded(record: Path) -> Any:
    """Return what Hydra has written down of how a run or a sweep began, or raise if that cannot be read."""
    try:
        hydra = OmegaConf.load(record).hydra
        OmegaConf.to_container(hydra.runtime, resolve=False)["cwd"]  # type: ignore[call-overload, index]  # a section
        arguments_of(hydra)
    except Exception as error:  # whatever a reader makes of a file that is cut off, or of others
        raise ValueError(
            f"{record}, where Hydra wrote down how the run began, cannot be read ({_reason(error)}): bring it back, "
            f"or remove it and type the run's settings, with its folder. {CONFIG} in that folder has them."
        ) from error
    return hydra


def _reason(error: BaseException) -> str:
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def run_of(checkpoint: Path) -> Path | None:
    """Return the folder of the run that wrote a checkpoint, if its settings are there."""
    return next((folder for folder in checkpoint.absolute().parents[:2] if (folder / RUN_RECORD).is_file()), None)


def key_of(override: str) -> str:
    """Return what an override sets.

    >>> key_of("+experiment=mine"), key_of("data/partition=iid"), key_of("~callbacks.progress")
    ('experiment', 'data/partition', 'callbacks.progress')
    """
    return override.lstrip("+~").partition("=")[0]


def quoted(path: Path) -> str:
    """Return a path as an override's value.

    >>> quoted(Path("/data/my runs/a")), quoted(Path("/data/runs"))
    ("'/data/my runs/a'", '/data/runs')
    """
    text = str(path)
    if re.fullmatch(r"[\w./:+-]+", text):
        return text
    return QuotedString(text.replace("${", "\\${"), Quote.single).with_quotes()


def _path(given: Mapping[str, str], name: str) -> str | None:
    value = value_of(given[name]) if name in given and name in {"ckpt_path", *_FOLDERS} else None
    return value if isinstance(value, str) and value and "://" not in value else None


def value_of(override: str) -> Any:
    """Return an override's value; None if it cannot be parsed."""
    try:
        return OverridesParser.create().parse_override(override).value()
    except HydraException:  # Hydra says so when it comes to it
        return None


# ---------------------------------------------------------------------- in Hydra


def arguments_of(hydra: Any) -> list[str]:
    """Return the arguments of a command from what Hydra knows of it, without those that hold for one call only."""
    sources = {source.provider: source for source in hydra.runtime.config_sources}
    options = [f"--config-dir={sources['command-line'].path}"] if "command-line" in sources else []
    if sources["main"].schema == "file":
        options.append(f"--config-path={sources['main'].path}")
    if hydra.job.config_name != "config":
        options.append(f"--config-name={hydra.job.config_name}")
    return [*options, *lasting(hydra.overrides.hydra), *lasting(hydra.overrides.task)]


def lasting(overrides: Sequence[str]) -> list[str]:
    """Return overrides without those that hold for one call only."""
    return [one for one in overrides if key_of(one) not in _OF_ONE_CALL]


def present_arguments() -> list[str]:
    """Return the arguments that go on with the present Hydra job, or with its sweep; none outside of Hydra."""
    if not HydraConfig.initialized():
        return []
    hydra = HydraConfig.get()
    if hydra.mode == RunMode.MULTIRUN and in_order(hydra):
        sweep = Path(hydra.runtime.cwd) / hydra.sweep.dir
        return ["-m", f"hydra.sweep.dir={quoted(sweep)}", "resume=true"]
    return [*arguments_of(hydra), f"hydra.run.dir={quoted(Path(hydra.runtime.output_dir))}"]


def in_order(hydra: Any) -> bool:
    """Whether a sweep's runs have the same numbers each time."""
    return str(hydra.sweeper._target_).endswith(".BasicSweeper")


def check_resumed(config: DictConfig, name: str) -> None:
    """Refuse ``resume=true`` where it is not clear what goes on. `name` is the setting that names the folder."""
    switch("resume", config.resume, ": `ckpt_path` takes a file")
    switch("trust", config.trust)
    if not config.resume:
        return
    hydra, folder = config.hydra, Path(OmegaConf.select(config, name)).absolute()
    if name == "hydra.sweep.dir" and not in_order(hydra):
        raise ValueError("`resume=true` needs Hydra's basic sweeper: the runs of others differ from call to call.")
    record = folder / _FOLDERS[name]
    if record.is_file():
        there, here = (lasting(one.overrides.task) for one in (recorded(record), hydra))
        if there != here:
            differ = f"there {_only_in(there, here)}, here {_only_in(here, there)}"
            raise ValueError(
                f"`resume=true` goes on with the settings that {folder} began with, got others: {differ}. "
                "Leave them out, or begin in another folder."
            )
    elif not any(key_of(one) == name for one in hydra.overrides.hydra):
        raise ValueError(f"`resume=true` needs the folder to go on in: add {name}=<folder>.")


def switch(name: str, value: Any, hint: str = "") -> None:
    """Refuse a setting that is neither true nor false."""
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be true or false, got {value!r}{hint}.")


def _only_in(overrides: Sequence[str], others: Sequence[str]) -> str:
    return " ".join(one for one in overrides if one not in others) or "nothing"


# ---------------------------------------------------------------------- in a run


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a run that is over; None if it is not."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        summary["score"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path}, which a run has that is finished, cannot be read ({_reason(error)}): bring it back, or remove "
            "it, and `resume=true` goes on from the newest checkpoint."
        ) from error
    return summary


def from_newest(cfg: DictConfig, folder: Path) -> DictConfig:
    """Return a configuration that goes on from the newest checkpoint of a folder, and warn where that is not the last.

    Where there is none, the run begins anew, and a warning says so if it had begun.
    """
    if cfg.ckpt_path is not None:
        return cfg
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    path = newest(files, cfg.folder)
    skipped = files if path is None else files[: files.index(path)]
    faults = "; ".join(f"{file.name} {fault(file) or NOT_OURS}" for file in skipped)
    if path is None and (Path(cfg.folder) / CONFIG).is_file():
        what = f"none of its checkpoints can be resumed from ({faults})" if files else "it has no checkpoint"
        rank_zero_warn(f"resume=true begins {cfg.folder} anew, at round 1: {what}.")
    elif skipped:
        rank_zero_warn(f"resume=true goes on from {path}: {faults}.")
    return cfg if path is None else cast(DictConfig, OmegaConf.merge(cfg, {"ckpt_path": str(path)}))


def tidy_states(folder: Path, trainer: Any) -> None:
    """Delete the files of clients' states that no checkpoint of a run that is over needs."""
    places = [str(place) for one in trainer.checkpoint_callbacks if (place := getattr(one, "dirpath", None))]
    if not any("://" in place for place in places):
        folders = [folder, *map(Path, places)]
        sweep_states(folder, {path for one in folders for path in one.rglob(f"*{SUFFIX}")})


def how_to_resume(folder: Path, root: Path, arguments: Sequence[str] | None = None) -> str:
    """Return the command that goes on from the newest checkpoint of a folder that loads, or with the whole sweep.

    `root` is the run's folder.
    """
    own = present_arguments() if arguments is None else arguments
    if "-m" not in own:
        path = newest(folder.glob(f"*{SUFFIX}"), root)
        if path is None:
            return "\nInterrupted before there was anything to resume from."
        own = [*_not_recorded(own, run_of(path)), f"ckpt_path={quoted(path)}"]
    return f"\nInterrupted. To go on:\n  {shlex.join(['fedhpo', *own])}"


def _not_recorded(arguments: Sequence[str], run: Path | None) -> list[str]:
    """Return the arguments that do not stand in a run's own settings."""
    if run is None:
        return list(arguments)
    try:
        known = [*arguments_of(recorded(run / RUN_RECORD)), f"hydra.run.dir={quoted(run)}"]
    except ValueError:
        known = []
    return [one for one in arguments if one not in known]
