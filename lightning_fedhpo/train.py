"""The command line: ``fedhpo`` composes a run from its configuration, trains, tests, and writes down what came out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import lightning
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_fedhpo import assembly
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.evaluation import Evaluation
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.tracking.console import report
from lightning_fedhpo.tracking.keeper import Keeper
from lightning_fedhpo.tracking.summary import build_summary, write_summary

PACKAGE = str(Path(__file__).parent)


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
        round 1 of 2, ...
        Everything is in ...
        >>> summary["ledger"]["rounds"]
        2
    """
    began = time.monotonic()
    folder = Path(cfg.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(cfg, folder / "config.yaml", resolve=True)
    checkpoint = existing(cfg.ckpt_path)
    lightning.seed_everything(cfg.seed, workers=True, verbose=False)
    data, model = assembly.build(cfg, "data"), assembly.build(cfg, "model")
    fed = assembly.build(cfg, "fed", algorithm=assembly.build(cfg, "algorithm"))
    callbacks = [fed, *assembly.searching(cfg), *assembly.callbacks(cfg, fed, folder)]
    loggers, summary = assembly.loggers(cfg), None
    try:
        with threads(cfg.threads):
            saving = {} if cfg.checkpoint is not None else {"enable_checkpointing": False}
            trainer = assembly.build(cfg, "trainer", callbacks=callbacks, logger=loggers, **saving)
            trainer.fit(model, datamodule=data, ckpt_path=checkpoint)
            tested = evaluated(fed, trainer, model, data, cfg.evaluate.clients)
        seconds = time.monotonic() - began
        summary = build_summary(fed.result, tested, seconds=seconds, seed=cfg.seed, resumed_from=checkpoint)
        write_summary(folder / "summary.json", summary)
    except SystemExit:  # what Lightning makes of Ctrl-C
        print(how_to_resume(folder))
        raise
    finally:
        write_tables(fed, folder)
        for logger in loggers:
            conclude(logger, summary)
    print(report(summary, folder, [logger.whereabouts for logger in loggers if hasattr(logger, "whereabouts")]))
    return summary


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch compute with so many threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def evaluated(
    fed: FederatedLoop, trainer: Trainer, model: LightningModule, data: FederatedData, clients: Any
) -> Evaluation | None:
    """Return the best arm's test on the clients, or None where they have nothing to be tested on."""
    if not data.sizes("test").any():
        return None
    return fed.evaluate(trainer, model, data, clients=list(clients) if OmegaConf.is_list(clients) else clients)


def write_tables(fed: FederatedLoop, folder: Path) -> None:
    """Write down the rounds and jobs so far, of a run that has begun."""
    if fed.arms:
        fed.result.history.to_csv(folder / "history.csv")
        fed.result.jobs.to_csv(folder / "jobs.csv")
        if len(fed.result.configs):
            fed.result.configs.to_csv(folder / "configs.csv")


def conclude(logger: Logger, summary: Mapping[str, Any] | None) -> None:
    """Let a logger that can end a run end it, with the summary or as a failure."""
    if hasattr(logger, "conclude"):
        shown = summary and {key: value for key, value in summary.items() if key not in ("arms", "versions")}
        logger.conclude(shown, failed=summary is None)


def existing(path: str | None) -> str | None:
    """Return a checkpoint's path, or raise if there is no such file."""
    if path is not None and "://" not in str(path) and not Path(path).is_file():
        raise ValueError(f"`ckpt_path` must be a checkpoint to resume from, got {path!r}, which is no file.")
    return path


def how_to_resume(folder: Path) -> str:
    """Say how to go on with an interrupted run."""
    kept = [folder / "checkpoints" / name for name in (Keeper.FILE, "last.ckpt")]
    path = next((path for path in kept if path.is_file()), None)
    if path is None:
        return "\nInterrupted before there was anything to resume from."
    command = ["fedhpo"]
    if HydraConfig.initialized():
        overrides = HydraConfig.get().overrides.task
        command += [one for one in overrides if not one.startswith(("ckpt_path=", "+ckpt_path="))]
    return f"\nInterrupted. To go on:\n  {shlex.join([*command, f'ckpt_path={path}'])}"


def readable(error: BaseException) -> bool:
    """Say whether an error's message is all that its reader needs: it was raised to tell about a wrong setting."""
    if isinstance(error, MisconfigurationException | OmegaConfBaseException):
        return True
    if error.__cause__ is not None and readable(error.__cause__):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE)
    return ours and isinstance(error, ValueError | TypeError)


@hydra.main(version_base="1.3", config_path="pkg://lightning_fedhpo.conf", config_name="config")
def main(cfg: DictConfig) -> float | None:
    """Run ``fedhpo``; return the score, for Hydra's optimising sweepers."""
    try:
        score: float | None = train(cfg)["score"]
    except Exception as error:
        if not readable(error):
            raise
        raise CompactHydraException(f"fedhpo: {error}") from error
    return score


if __name__ == "__main__":
    main()
