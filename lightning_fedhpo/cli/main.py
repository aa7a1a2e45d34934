"""The command line: ``fedhpo`` composes a run from its configuration, trains, tests, and writes down what came out."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import hydra
import lightning
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import processes
from lightning_fedhpo.arguments import whole
from lightning_fedhpo.cli import build
from lightning_fedhpo.cli.console import report
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.processes import watchdog
from lightning_fedhpo.processes.board import LostProcessError
from lightning_fedhpo.run.checkpoint_file import SUFFIX, UnwrittenError, fault, newest, refusal
from lightning_fedhpo.run.divergence import DivergedError
from lightning_fedhpo.run.evaluation import Evaluation
from lightning_fedhpo.run.folders import make_folder, path_of
from lightning_fedhpo.run.machine import threads
from lightning_fedhpo.run.trajectory import write_trajectory
from lightning_fedhpo.seeding import MOST_SEED
from lightning_fedhpo.setup.dry_run import ClientError
from lightning_fedhpo.tracking.summary import build_summary, write_summary

PACKAGE = str(Path(__file__).parents[1])
CONFIG = "config.yaml"
THREADS = "OMP_NUM_THREADS"
GROUPS = ("algorithm", "data", "executor", "logger", "model", "search", "space", "trainer", "tuner")


def train(cfg: DictConfig) -> dict[str, Any]:
    """Run what a configuration describes, and return what its ``summary.json`` holds.

    Args:
        cfg: As ``conf/config.yaml`` composes it. Its ``folder`` is where the run's files go.

    Example:
        >>> import tempfile
        >>> small = ["search=none", "data.clients=20", "trainer.max_epochs=2", "logger=none"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with hydra.initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        ...         cfg = hydra.compose("config", [*small, f"folder={folder}"])
        ...     summary = train(cfg)
        executor: jobs run side by side, ...
        round 1 of 2, ...
        Everything is in ...
        >>> summary["ledger"]["rounds"]
        2
    """
    began = time.monotonic()
    folder, first = path_of("folder", cfg.folder), processes.is_first()
    if first:
        begin(cfg, folder)
    checkpoint, count = existing(cfg.ckpt_path), threads_of(cfg.threads)
    seed = whole("seed", cfg.seed, 0, MOST_SEED)
    lightning.seed_everything(seed % 2**32, workers=True, verbose=False)
    data, model = build.build(cfg, "data"), build.build(cfg, "model")
    fed = build.build(cfg, "fed", algorithm=build.build(cfg, "algorithm"))
    callbacks = [fed, *build.searching(cfg), *build.callbacks(cfg, fed, folder)]
    loggers, summary = build.loggers(cfg), None
    try:
        with threads(count), watchdog.surroundings(), private.children_run(command(folder)):
            saving = {} if cfg.checkpoint is not None else {"enable_checkpointing": False}
            trainer = build.build(cfg, "trainer", callbacks=callbacks, logger=loggers, **saving)
            if (reason := private.refused_launcher(trainer.strategy)) is not None:  # before processes are started
                raise MisconfigurationException(reason)
            if trainer.world_size == 1 and not first:  # whatever number a launcher has given it
                first = True
                processes.be_first()
                begin(cfg, folder)
            trainer.fit(model, datamodule=data, ckpt_path=checkpoint)
            tested = evaluated(fed, trainer, model, data, build.tested_clients(cfg))
        seconds = time.monotonic() - began
        told = {"executor": fed.choice, "resumed_from": checkpoint}
        summary = build_summary(fed.result, tested, seconds=seconds, seed=cfg.seed, **told)
        if first:
            write_tables(fed, folder)
            write_summary(folder / "summary.json", summary)
    except BaseException as error:
        if first:
            with suppress(OSError):  # the first error is the one to hear of
                write_tables(fed, folder)
        heard = first or (processes.is_lost(error) and not watchdog.silent(error))
        resumes = fed.arms and not isinstance(error, DivergedError)  # which would only come again
        if heard and (not isinstance(error, Exception) or resumes):  # Ctrl-C, and what Lightning makes of it
            print(how_to_resume(build.checkpoint_folder(cfg, folder)))
        raise
    finally:
        for logger in loggers:
            conclude(logger, summary)
    if first:
        print(report(summary, folder, [logger.whereabouts for logger in loggers if hasattr(logger, "whereabouts")]))
    return summary


def begin(cfg: DictConfig, folder: Path) -> None:
    """Make a run's folder, with its configuration in it."""
    make_folder("folder", folder)
    OmegaConf.save(cfg, folder / CONFIG, resolve=True)


def evaluated(
    fed: FederatedLoop, trainer: Trainer, model: LightningModule, data: FederatedData, clients: Any
) -> Evaluation | None:
    """Return the best arm's test on the clients, or None where they have nothing to be tested on."""
    if not data.sizes("test").any():
        return None
    return fed.evaluate(trainer, model, data, clients=clients)


def write_tables(fed: FederatedLoop, folder: Path) -> None:
    """Write down the rounds and jobs so far, of a run that has begun."""
    if fed.arms:
        fed.result.history.to_csv(folder / "history.csv")
        fed.result.jobs.to_csv(folder / "jobs.csv")
        for name, table in {"configs": fed.result.configs, **fed.tuner.tables()}.items():
            if len(table):
                table.to_csv(folder / f"{name}.csv")
        write_trajectory(folder / "trajectory.json", fed.result.trajectory)


def conclude(logger: Logger, summary: Mapping[str, Any] | None) -> None:
    """Let a logger that can end a run end it, with the summary or as a failure."""
    if hasattr(logger, "conclude"):
        shown = summary and {key: value for key, value in summary.items() if key not in ("arms", "versions")}
        logger.conclude(shown, failed=summary is None)


def existing(path: Any) -> str | None:
    """Return a checkpoint's path, or raise if there is no such file."""
    if path is not None and "://" not in str(path) and not path_of("ckpt_path", path).is_file():
        raise ValueError(refusal(path, fault(Path(path)) or "is no file"))
    return None if path is None else str(path)


def threads_of(count: Any) -> int | None:
    """Return with how many threads torch is to compute, None to leave it as it is."""
    return None if count is None else whole("threads", count, high=1024, why="null leaves torch its own number")


def how_to_resume(folder: Path, overrides: Sequence[str] | None = None) -> str:
    """Say how to go on with an interrupted run whose checkpoints are in a folder.

    Args:
        folder: Where they are; the newest that loads is the one to take.
        overrides: What the run was told; by default what Hydra says.
    """
    path = newest(folder.glob(f"*{SUFFIX}"))
    if path is None:
        return "\nInterrupted before there was anything to resume from."
    told = [one for one in overrides or hydra_overrides() if not one.startswith(("ckpt_path=", "+ckpt_path="))]
    return f"\nInterrupted. To go on:\n  {shlex.join(['fedhpo', *told, f'ckpt_path={path}'])}"


def hydra_overrides() -> list[str]:
    """Return what Hydra says that the run was told."""
    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []


def readable(error: BaseException) -> bool:
    """Say whether an error's message is all that its reader needs: it was raised to tell about a wrong setting."""
    kinds = MisconfigurationException | OmegaConfBaseException | LostProcessError | UnwrittenError | ClientError
    if isinstance(error, kinds):
        return True
    if error.__cause__ is not None and readable(error.__cause__):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE)
    return ours and isinstance(
        error, ValueError | TypeError | FileNotFoundError | ModuleNotFoundError | ConnectionError
    )


def main() -> None:
    """Run ``fedhpo``."""
    for argument in sys.argv[1:]:
        group, _, value = argument.partition("=")
        if group in GROUPS and (value == "null" or value.isdigit()):  # Hydra would show where it failed and not why
            told = f"`{group}` must be the name of an option, got {value}: `fedhpo --help` lists them, none among them"
            print(f"fedhpo: {told} where that can be.", file=sys.stderr)
            sys.exit(1)
    run()


@hydra.main(version_base="1.3", config_path="pkg://lightning_fedhpo.conf", config_name="config")
def run(cfg: DictConfig) -> float | None:
    """Run what Hydra has composed; return the score, for its optimising sweepers."""
    try:
        score: float | None = train(cfg)["score"]
    except KeyboardInterrupt:  # while nothing of Lightning's runs, which makes something else of it
        sys.exit(1)
    except SIGTERMException:  # whose own code says that all went well
        sys.exit(128 + signal.SIGTERM)
    except Exception as error:
        if watchdog.silent(error):
            if HydraConfig.get().mode == RunMode.MULTIRUN:  # the next run of the sweep needs this process
                raise CompactHydraException("fedhpo: a run has failed, as the first process says.") from None
            sys.exit(1)
        if not readable(error):
            raise
        raise CompactHydraException(f"fedhpo: {error}") from error
    return score


def command(folder: Path) -> list[str]:
    """Return what a process runs that shares a run's jobs: the run's configuration, without Hydra."""
    work = f"from lightning_fedhpo.cli.main import work; work({str(folder / CONFIG)!r}, {hydra_overrides()!r})"
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {work}"]


def work(config: str, overrides: Sequence[str]) -> None:
    """Share the jobs of a run that another process has begun, and leave it to that one to speak.

    Args:
        config: The run's configuration.
        overrides: What the run was told.
    """
    cfg: Any = OmegaConf.load(config)
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            train(cfg)
            return
        except KeyboardInterrupt:
            sys.exit(1)
        except Exception as error:
            if watchdog.silent(error) or isinstance(error, MisconfigurationException):
                sys.exit(1)
            if not processes.is_lost(error):
                raise
            told = f"fedhpo: {error}"
    kept = build.checkpoint_folder(cfg, Path(cfg.folder).absolute())
    print(told, how_to_resume(kept, overrides), sep="\n", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
