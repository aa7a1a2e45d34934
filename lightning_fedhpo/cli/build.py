"""Builds the objects of a run from its configuration: every section with a ``_target_`` becomes what it names."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.experimental.callback import Callback as HydraCallback
from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from lightning_fedhpo import processes
from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.cli.errors import in_settings
from lightning_fedhpo.cli.interrupt_checkpoint import InterruptCheckpoint
from lightning_fedhpo.cli.resume import check_resumed
from lightning_fedhpo.files.folders import make_folder, path_of
from lightning_fedhpo.loop import FederatedLoop
from lightning_fedhpo.run.evaluation import EvaluationCheck
from lightning_fedhpo.tracking.mlflow import check_server


class RunFolder(HydraCallback):
    """Check the folder of a run or sweep, in one line where Hydra would show a traceback; end a sweep with a hint."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the folder of a run."""
        self._check("hydra.run.dir", config)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the folder of a sweep."""
        self._check("hydra.sweep.dir", config)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the command that compares the runs of a sweep."""
        if processes.is_first() and not OmegaConf.select(config, "explain"):
            command = shlex.join(["fedhpo-compare", str(OmegaConf.select(config, "hydra.sweep.dir"))])
            print(f"Compare the runs: {command}")

    def _check(self, name: str, config: DictConfig) -> None:
        try:
            check_resumed(config, name)
            make_folder(name, path_of(name, OmegaConf.select(config, name)))
        except (TypeError, ValueError) as error:
            print(f"fedhpo: {error}", file=sys.stderr)
            sys.exit(1)  # Hydra turns errors of its callbacks into warnings


def build(cfg: DictConfig, key: str, **more: Any) -> Any:
    """Build the object of a section; ``more`` are arguments that are objects already. Errors begin with the section."""
    section = OmegaConf.select(cfg, key)
    if not OmegaConf.is_dict(section) or "_target_" not in section:
        raise ValueError(f"`{key}` must be a section with a `_target_`, got {section!r}: `fedhpo --help` lists them.")
    try:
        if key == "trainer":
            _check_trainer(section)
        return instantiate(section, _partial_=True, _convert_="all")(**more)
    except (TypeError, ValueError, ModuleNotFoundError) as error:
        raise ValueError(f"{key}: {in_settings(str(error), cfg, key)}") from error
    except InstantiationException as error:  # of a nested section; Hydra's own text repeats the cause
        raise ValueError(f"{key}: {in_settings(str(error.__cause__ or error), cfg, key)}") from error


def _check_trainer(section: DictConfig) -> None:
    """Refuse values of another kind than the Trainer's signature says: Lightning would stumble over them in the run."""
    given: Any = OmegaConf.to_container(section, resolve=True)
    is_object = {name: isinstance(value, dict) and "_target_" in value for name, value in given.items()}
    check_kinds(Trainer, {name: value for name, value in given.items() if not is_object[name]})


def from_file(cfg: DictConfig) -> DictConfig:
    """Return a configuration without the values that ``tuner=fixed`` has by itself, where a file has others."""
    if OmegaConf.select(cfg, "tuner.file") is None or "client" not in cfg.tuner:
        return cfg
    own = OmegaConf.load(str(files("lightning_fedhpo.conf") / "tuner" / "fixed.yaml"))
    if cfg.tuner.client == own.client:
        cfg = cfg.copy()
        cfg.tuner.client = {}
    return cfg


def searching(cfg: DictConfig, made: Callable[..., Any] | None = None) -> list[Any]:
    """Return the search and the tuner, if there are any. Both get the same space. `made` builds them by their names."""
    kinds = [kind for kind in ("search", "tuner") if cfg[kind] is not None]
    takers = [kind for kind in kinds if "space" in cfg[kind]]
    if cfg.space is not None and not takers:
        lack = "there is a `space`, but neither the tuner nor the search looks for anything in it"
        raise ValueError(f"{lack}: choose one that does, or space=none.")
    if takers and cfg.space is None:
        who = " and the ".join(takers) + (" need" if takers[1:] else " needs")
        without = " ".join(f"{kind}=none" for kind in takers)
        raise ValueError(f"the {who} a space, got none: choose one, such as space=papers, or take {without}.")
    space = build(cfg, "space") if takers else None
    made = made or partial(build, cfg)
    return [made(kind, **({"space": space} if kind in takers else {})) for kind in kinds]


def callbacks(cfg: DictConfig, fed: FederatedLoop, folder: Path) -> list[Callback]:
    """Return the configured callbacks, those that save checkpoints, and a check of the final test's clients."""
    if cfg.callbacks is not None and not OmegaConf.is_dict(cfg.callbacks):
        raise ValueError(f"`callbacks` must be a section of sections, each with a `_target_`, got {cfg.callbacks!r}.")
    made: list[Callback] = [build(cfg, f"callbacks.{name}") for name in cfg.callbacks or ()]
    if cfg.checkpoint is not None:
        on_interrupt = InterruptCheckpoint(fed, checkpoint_folder(cfg, folder))  # checks the folder first
        for name in ("checkpoint", "last_checkpoint"):
            if cfg[name] is not None:
                made.append(build(cfg, name))
        made.append(on_interrupt)
    return [*made, EvaluationCheck(tested_clients(cfg), "evaluate.clients")]


def checkpoint_folder(cfg: DictConfig, folder: Path) -> Path:
    """Return the folder of a run's checkpoints; for remote storage the default one."""
    chosen = OmegaConf.select(cfg, "checkpoint.dirpath")
    remote = chosen is None or "://" in str(chosen)
    return folder / "checkpoints" if remote else path_of("checkpoint.dirpath", chosen)


def tested_clients(cfg: DictConfig) -> Any:
    """Return the clients of the final test: None for all, a number of them, or a list of ids."""
    if not OmegaConf.is_dict(cfg.evaluate):
        raise ValueError(f"`evaluate` must be a section with `clients`, got {cfg.evaluate!r}.")
    if others := [str(name) for name in cfg.evaluate if name != "clients"]:
        raise ValueError(f"`evaluate` has only `clients`, got {', '.join(others)}, too.")
    clients = cfg.evaluate.clients
    return OmegaConf.to_object(clients) if OmegaConf.is_config(clients) else clients


def loggers(cfg: DictConfig) -> list[Logger]:
    """Return the configured loggers with the configuration logged. Of several processes, only the first one logs."""
    if not cfg.logger or not processes.is_first():
        return []
    if not OmegaConf.is_dict(cfg.logger):
        raise ValueError(
            f"`logger` must be a section with a `_target_`, got {cfg.logger!r}: `fedhpo --help` lists them."
        )
    several = "_target_" not in cfg.logger
    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    for name in OmegaConf.select(cfg, "space.client") or ():
        settings["model"].pop(name, None)  # it is tuned: the model's own value is not used
    made = (
        [_logger(cfg.logger, name, settings) for name in cfg.logger] if several else [_logger(cfg, "logger", settings)]
    )
    return [logger for logger in made if logger is not None]


def _logger(cfg: DictConfig, name: str, settings: Mapping[str, Any]) -> Logger | None:
    """Return a logger with the settings logged. Its first error is told in one line, whatever its package raises."""
    address = cfg[name].get("tracking_uri") if OmegaConf.is_dict(cfg[name]) else None
    if str(address).startswith(("http://", "https://")):
        check_server(str(address))
    try:
        logger: Logger | None = build(cfg, name)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{name}: {_first_line(error)}") from error
    try:
        if logger is not None:
            logger.log_hyperparams(settings)  # type: ignore[arg-type]  # of all kinds of values
    except Exception as error:
        raise ValueError(f"{type(logger).__name__} cannot be used: {_first_line(error)}") from error
    return logger


def _first_line(error: BaseException) -> str:
    """Return the first line of an error, or of what the system has said before it."""
    told: BaseException | None = error
    while told is not None and not isinstance(told, OSError):
        told = told.__cause__ or told.__context__
    told = told or error
    return f"{type(told).__name__}: {(str(told).strip() or '-').splitlines()[0]}"
