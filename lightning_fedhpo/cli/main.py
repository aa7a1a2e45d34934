"""The command ``fedhpo``: it builds a run from its configuration, trains, tests and writes the results down."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import hydra
import lightning
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import ChoiceSweep, Glob
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from omegaconf import DictConfig, OmegaConf

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import processes
from lightning_fedhpo.arguments import WrongSettings, whole
from lightning_fedhpo.cli import build, worker
from lightning_fedhpo.cli.console import report
from lightning_fedhpo.cli.errors import in_settings, readable
from lightning_fedhpo.cli.interrupt_checkpoint import InterruptCheckpoint
from lightning_fedhpo.cli.report import report_line
from lightning_fedhpo.cli.resume import (
    finished,
    from_newest,
    how_to_resume,
    key_of,
    switch,
    tidy_states,
    value_of,
    with_recorded_settings,
)
from lightning_fedhpo.cli.run_warnings import kept_warnings
from lightning_fedhpo.files.folders import path_of
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.machine import threads
from lightning_fedhpo.plots import RunData, load
from lightning_fedhpo.run.checkpoint_file import fault, refusal
from lightning_fedhpo.run.divergence import DivergedError
from lightning_fedhpo.run.evaluation import check_clients
from lightning_fedhpo.seeding import MOST_SEED
from lightning_fedhpo.setup.checks import check_federation
from lightning_fedhpo.setup.trainer_checks import check_trainer
from lightning_fedhpo.tracking.run_files import (
    CONFIG,
    SUMMARY,
    begin_folder,
    build_summary,
    write_failure,
    write_run,
    write_tables,
)

GROUPS = {"algorithm", "clients", "data", "devices", "executor", "experiment", "logger", "model", "noise"}
GROUPS |= {"search", "space", "trainer", "tuner"}
SUBGROUPS = {"data/partition", "space/client", "space/server"}
"""Groups of a section's parts: an empty list leaves them out."""


def train(cfg: DictConfig) -> dict[str, Any]:
    """Run a configuration and return its summary, as in ``summary.json``; with ``explain`` only what would be run.

    Args:
        cfg: As ``conf/config.yaml`` composes it. The run's files go to its ``folder``.

    Example:
        >>> import tempfile
        >>> small = ["search=none", "data.clients=20", "trainer.max_epochs=2", "logger=none", "executor=sequential"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with hydra.initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        ...         cfg = hydra.compose("config", [*small, f"folder={folder}"])
        ...     summary = train(cfg)
        executor: jobs run one after another, ...
        round 1 of 2, ...
        Everything is in ...
        >>> summary["ledger"]["rounds"]
        2
    """
    with kept_warnings() as told:
        return _train(cfg, told)


def _train(cfg: DictConfig, told: Sequence[str]) -> dict[str, Any]:
    began, folder, first = time.monotonic(), path_of("folder", cfg.folder), processes.is_first()
    if cfg.resume and not cfg.explain:
        if (done := finished(folder)) is not None:
            if first:
                print(f"finished before: {folder}")
            return done
        cfg = from_newest(cfg, build.checkpoint_folder(cfg, folder))
    cfg = build.from_file(cfg)
    if first and not cfg.explain:
        begin(cfg, folder)
    with WrongSettings(readable) as wrong:
        checkpoint, count = wrong.attempt(existing, cfg.ckpt_path), wrong.attempt(threads_of, cfg.threads)
        seed = wrong.attempt(whole, "seed", cfg.seed, 0, MOST_SEED) or 0
        for name in ("report", "explain"):
            wrong.attempt(switch, name, cfg[name])
        if wrong.errors:  # others take these two, and are to be looked at for themselves
            cfg = cast(DictConfig, OmegaConf.merge(cfg, {"seed": seed, "threads": count}))

        def made(part: str, **more: Any) -> Any:
            return wrong.attempt(build.build, cfg, part, **more)

        lightning.seed_everything(seed % 2**32, workers=True, verbose=False)
        data, model = made("data"), made("model")
        parts = {part: made(part) for part in ("algorithm", "clients", "devices", "noise") if cfg[part] is not None}
        fed = made("fed", **{part: one for part, one in parts.items() if one is not None})
        callbacks = [fed, *(wrong.attempt(build.searching, cfg, made) or [])]
        clients = wrong.attempt(build.tested_clients, cfg)
        callbacks += [] if fed is None else wrong.attempt(build.callbacks, cfg, fed, folder) or []
        if wrong.errors and None not in (data, fed):  # what a run would find
            check_federation(wrong, fed, data)
            wrong.attempt(check_clients, clients, data.sizes("test"), "evaluate.clients")
            if (trainer := made("trainer", logger=False)) is not None:
                wrong.attempt(check_trainer, trainer, fed.monitor)
    options = {} if cfg.checkpoint is not None else {"enable_checkpointing": False}
    if cfg.explain:
        callbacks = [one for one in callbacks if not isinstance(one, InterruptCheckpoint)]
        with threads(count):
            trainer = build.build(cfg, "trainer", callbacks=callbacks, logger=bool(cfg.logger), **options)
            explanation = fed.explain(model, data, trainer=trainer)
        if first:
            print(explanation)
        return {"score": None, "explanation": explanation.to_dict()}
    loggers, summary = build.loggers(cfg), None
    try:
        with threads(count), private.children_run(worker.command(folder / CONFIG)):
            trainer = build.build(cfg, "trainer", callbacks=callbacks, logger=loggers, **options)
            if (reason := private.refused_launcher(trainer.strategy)) is not None:  # before processes are started
                raise MisconfigurationException(reason)
            if trainer.world_size == 1 and not first:  # a launcher may number a single process
                first = True
                processes.be_first()
                begin(cfg, folder)
            trainer.fit(model, datamodule=data, ckpt_path=checkpoint)
            has_test = data.sizes("test").any()
            tested = fed.evaluate(trainer, model, data, clients=clients) if has_test else None
        result, more = fed.result, {"resumed_from": checkpoint, "warnings": told}
        summary = build_summary(result, tested, seed=cfg.seed, seconds=time.monotonic() - began, **more)
        if first:
            write_run(result, folder, summary)
            tidy_states(folder, trainer)
            run = in_memory(cfg, fed, summary, folder)
            notes = [report_line(folder, run=run, trainer=trainer)] if cfg.report else []
    except BaseException as error:
        with suppress(OSError):  # the first error is the one to report
            if first and fed.arms:
                write_tables(fed.result, folder)
                (folder / SUMMARY).unlink(missing_ok=True)  # of a run that was to go on beyond its end
        speaks = first or isinstance(error, processes.LostProcessError)
        resumes = fed.arms and not isinstance(error, DivergedError)  # a resumed run would diverge again
        if speaks and (resumes or not isinstance(error, Exception)):  # Ctrl-C is no Exception
            print(how_to_resume(build.checkpoint_folder(cfg, folder), folder))
        raise
    finally:
        for logger in loggers:
            conclude(logger, summary)
    if first:
        whereabouts = [logger.whereabouts for logger in loggers if hasattr(logger, "whereabouts")]
        print(report(summary, folder, [*whereabouts, *notes]))
    return summary


def begin(cfg: DictConfig, folder: Path) -> None:
    """Make a run's folder and save the configuration in it."""
    begin_folder(folder, settings_of(cfg), resumed=cfg.ckpt_path is not None)


def settings_of(cfg: DictConfig) -> dict[str, Any]:
    """Return a configuration as plain values."""
    return cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))


def mark_failed(cfg: DictConfig, error: Exception) -> None:
    """Write into the folder of a run that has begun and is not finished why it failed."""
    folder = Path(str(cfg.folder))
    if processes.is_first() and not cfg.explain and (folder / CONFIG).is_file() and not (folder / SUMMARY).is_file():
        write_failure(folder, error)


def in_memory(cfg: DictConfig, fed: FederatedLoop, summary: Mapping[str, Any], folder: Path) -> RunData:
    """Return what reading the run's folder would return, with labels that are not at hand, too."""
    federation, settings = load(fed.data).federation, settings_of(cfg)
    return replace(load(fed.result), summary=summary, folder=folder, settings=settings, federation=federation)


def conclude(logger: Logger, summary: Mapping[str, Any] | None) -> None:
    """End a logger's run with the summary, or as failed without one, if the logger can."""
    if hasattr(logger, "conclude"):
        shown = summary and {key: value for key, value in summary.items() if key not in ("arms", "versions")}
        logger.conclude(shown, failed=summary is None)


def existing(path: Any) -> str | None:
    """Return a checkpoint's path, or raise if there is no such file. Remote paths are not checked."""
    if path is not None and "://" not in str(path) and not path_of("ckpt_path", path).is_file():
        raise ValueError(refusal(path, fault(Path(path)) or "is no file"))
    return None if path is None else str(path)


def threads_of(count: Any) -> int | None:
    """Return the number of torch's threads; None leaves it as it is."""
    return None if count is None else whole("threads", count, high=1024, why="null leaves torch its own number")


def without_search_for_file(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments: with ``search=none`` if values come from a file, unless it asks for a search.

    >>> without_search_for_file(["tuner=fixed", "tuner.file=best.yaml"])
    ['tuner=fixed', 'tuner.file=best.yaml', 'search=none']
    """
    given = {key_of(one) for one in arguments}
    return [*arguments, *(["search=none"] if "tuner.file" in given and "search" not in given else [])]


def main() -> None:
    """Run ``fedhpo``. Modules in the folder where it is called can be named in its configuration."""
    try:
        sys.argv[1:] = without_search_for_file(with_recorded_settings(sys.argv[1:]))
    except ValueError as error:
        print(f"fedhpo: {error}", file=sys.stderr)
        sys.exit(1)
    sys.path.insert(0, os.getcwd())
    for argument in sys.argv[1:]:
        group, text = key_of(argument), argument.partition("=")[2]
        chosen = value_of(argument) if group in GROUPS | SUBGROUPS and text else "nothing"
        several = chosen.list if isinstance(chosen, ChoiceSweep) else [chosen]
        if not all(isinstance(one, str | list | dict | Glob) and (one or group in SUBGROUPS) for one in several):
            rule = f"`{group}` must be the name of an option, got {text}"  # Hydra would show a traceback
            print(f"fedhpo: {rule}: `fedhpo --help` lists them, none among them where it can be.", file=sys.stderr)
            sys.exit(1)
    run()


@hydra.main(version_base="1.3", config_path="pkg://lightning_fedhpo.conf", config_name="config")
def run(cfg: DictConfig) -> float | None:
    """Run what Hydra has composed and return the score, for Hydra's sweepers."""
    warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)  # Lightning's, by new torch
    if cfg.ckpt_path or cfg.resume:
        warnings.filterwarnings("ignore", "(Checkpoint|Experiment logs) directory .* exists and is not empty")
    try:
        score: float | None = train(cfg)["score"]
    except KeyboardInterrupt:
        sys.exit(1)
    except SIGTERMException:  # Lightning would exit with 0
        sys.exit(128 + signal.SIGTERM)
    except Exception as error:
        mark_failed(cfg, error)
        if processes.is_silent(error):
            if HydraConfig.get().mode == RunMode.MULTIRUN:  # the next run of the sweep needs this process
                raise CompactHydraException("fedhpo: a run has failed, as the first process says.") from None
            sys.exit(1)
        if not readable(error):
            raise
        raise CompactHydraException(f"fedhpo: {in_settings(str(error), cfg)}") from error
    return score


if __name__ == "__main__":
    main()
