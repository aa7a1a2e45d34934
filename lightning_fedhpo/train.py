"""The command line: ``fedhpo`` composes a run from its configuration, trains, tests, and writes down what came out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra
import lightning
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException, InstantiationException
from hydra.utils import instantiate
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_fedhpo.evaluation import Evaluation
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.tracking.console import report
from lightning_fedhpo.tracking.keeper import Keeper
from lightning_fedhpo.tracking.summary import build_summary, plain, write_summary

PACKAGE = str(Path(__file__).parent)


def train(cfg: DictConfig) -> dict[str, Any]:
    """Run what a configuration describes, and return what its ``summary.json`` holds.

    Args:
        cfg: As ``conf/config.yaml`` composes it. Its ``folder`` is where the run's files go.

    Example:
        >>> import hydra, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> with hydra.initialize_config_module("lightning_fedhpo.conf", version_base="1.3"):
        ...     cfg = hydra.compose("config", ["trainer.max_epochs=2", "logger=none", f"folder={folder.name}"])
        >>> cfg.trainer.enable_progress_bar = False
        >>> train(cfg)["ledger"]["rounds"]  # doctest: +ELLIPSIS
        <BLANKLINE>
        Best hyperparameters
        ...
        2
    """
    began = time.monotonic()
    folder = Path(cfg.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(cfg, folder / "config.yaml", resolve=True)
    checkpoint = found(cfg.ckpt_path)
    lightning.seed_everything(cfg.seed, workers=True, verbose=False)
    with threads(cfg.threads):
        summary, notes = run(cfg, folder, checkpoint, began)
    data, model, fed = build(cfg, "data"), build(cfg, "model"), build(cfg, "fed", algorithm=build(cfg, "algorithm"))
    parts = [fed, *searchers(cfg), *callbacks(cfg, fed, folder)]
    loggers = logging_to(cfg)
    summary = None
    try:
        trainer = build(cfg, "trainer", callbacks=parts, logger=loggers or False)
        trainer.fit(model, datamodule=data, ckpt_path=checkpoint)
        tested = evaluated(fed, trainer, model, data, cfg.evaluate.clients)
        summary = build_summary(
            fed.result, tested, seconds=time.monotonic() - began, seed=cfg.seed, resumed_from=checkpoint
        )
        write_summary(folder / "summary.json", summary)
    except SystemExit:  # what Lightning makes of Ctrl-C
        print(interrupted(folder))
        raise
    finally:
        write_tables(fed, folder)
        for logger in loggers:
            conclude(logger, summary)
    notes = [logger.whereabouts for logger in loggers if hasattr(logger, "whereabouts")]
    print(report(summary, folder, notes))
    return summary


def build(cfg: DictConfig, key: str, **more: Any) -> Any:
    """Make the object that a section describes, with some arguments that are objects already.

    Raises:
        ValueError: If its constructor refuses an argument; the message begins with the section's name.
    """
    if "_target_" not in (cfg[key] or {}):
        raise ValueError(f"`{key}` must be a section with a `_target_`, got {cfg[key]!r}: choose one by {key}=<name>.")
    try:
        return instantiate(cfg[key], _partial_=True, _convert_="all")(**more)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{key}`: {error}") from error
    except InstantiationException as error:
        if error.__cause__ is None:
            raise
        raise ValueError(f"`{key}`: {error.__cause__}") from error


def searchers(cfg: DictConfig) -> list[Any]:
    """Return the search and the tuner, where there are any, on the one space that they share."""
    takers = [key for key in ("search", "tuner") if cfg[key] is not None]
    space = None if cfg.space is None else build(cfg, "space")
    if space is not None and not any("space" in cfg[key] for key in takers):
        raise ValueError(
            "there is a `space`, but neither the search nor the tuner looks for anything in it: choose a tuner or a "
            "search that does, or space=none."
        )
    return [build(cfg, key, **({"space": space} if "space" in cfg[key] else {})) for key in takers]


def callbacks(cfg: DictConfig, fed: FederatedLoop, folder: Path) -> list[Any]:
    """Return the configured callbacks, and what keeps checkpoints."""
    chosen = [build(cfg.callbacks, name) for name in cfg.callbacks or ()]
    kept = [] if cfg.checkpoint is None else [build(cfg, "checkpoint"), Keeper(fed, folder / "checkpoints")]
    return [*chosen, *kept]


def logging_to(cfg: DictConfig) -> list[Logger]:
    """Return the configured loggers, told of the configuration: one, several by name, or none."""
    if not cfg.logger:
        return []
    single = "_target_" in cfg.logger
    loggers = [build(cfg, "logger")] if single else [build(cfg.logger, name) for name in cfg.logger]
    loggers = [logger for logger in loggers if logger is not None]
    for logger in loggers:
        logger.log_hyperparams(OmegaConf.to_container(cfg, resolve=True))
    return loggers


def conclude(logger: Logger, summary: Mapping[str, Any] | None) -> None:
    """Let a logger that can end a run end it."""
    if hasattr(logger, "conclude"):
        shown = {key: value for key, value in (summary or {}).items() if key not in ("arms", "versions")}
        logger.conclude(shown or None, failed=summary is None)


def evaluated(fed: FederatedLoop, trainer: Any, model: Any, data: Any, clients: Any) -> Evaluation | None:
    """Return the best arm's test on the clients, or None where they have nothing to be tested on."""
    if not data.sizes("test").any():
        return None
    return fed.evaluate(trainer, model, data, clients=list(clients) if OmegaConf.is_list(clients) else clients)


def write_tables(fed: FederatedLoop, folder: Path) -> None:
    """Write down the rounds and jobs so far, of a run that has begun."""
    if fed.arms:
        fed.result.history.to_csv(folder / "history.csv")
        fed.result.jobs.to_csv(folder / "jobs.csv")


def found(path: str | None) -> str | None:
    """Return a checkpoint's path, or raise if there is no such file."""
    if path is not None and "://" not in str(path) and not Path(path).is_file():
        raise ValueError(f"`ckpt_path` must be a checkpoint to resume from, got {path!r}, which is no file.")
    return path


def interrupted(folder: Path) -> str:
    """Say how to go on with an interrupted run."""
    kept = [folder / "checkpoints" / name for name in (f"{Keeper.NAME}.ckpt", "last.ckpt")]
    path = next((path for path in kept if path.is_file()), None)
    if path is None:
        return "Interrupted before there was anything to resume from."
    overrides = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
    overrides = [one for one in overrides if not one.startswith(("ckpt_path=", "+ckpt_path="))]
    return f"Interrupted. To go on:\n  {shlex.join(['fedhpo', *overrides, f'ckpt_path={path}'])}"


def readable(error: BaseException) -> bool:
    """Say whether an error's message is all that its reader needs: it was raised to tell about a wrong setting."""
    if isinstance(error, MisconfigurationException | OmegaConfBaseException):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE)
    return ours and isinstance(error, ValueError | TypeError)


@hydra.main(version_base="1.3", config_path="pkg://lightning_fedhpo.conf", config_name="config")
def main(cfg: DictConfig) -> Any:
    """Run ``fedhpo``; return the score, for Hydra's optimising sweepers."""
    try:
        return train(cfg)["score"]
    except Exception as error:
        if not readable(error):
            raise
        raise CompactHydraException(f"fedhpo: {error}") from error


if __name__ == "__main__":
    main()
