"""Weights & Biases, at the side of a run and never in its way.

Offline unless the user is logged in or asks otherwise. Whatever goes wrong with it is said once, and the run goes on:
an unreachable server or a refused key falls back to files in the run's folder, and without these there is no logger.
"""

from __future__ import annotations

import configparser
import netrc
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo.tracking.sweep import sweep_group

MODES = ("auto", "online", "offline", "disabled")
DEFAULT_SERVER = "https://api.wandb.ai"
REACH_SECONDS = 3.0
"""How long to knock at the server's door before the run starts without it."""
INIT_SECONDS = 10.0
"""How long to wait for a server that answered the door."""
FINISH_SECONDS = 60.0
"""How long to wait at the end for what is still to be sent; the rest stays on disk, for ``wandb sync``."""

_SYNONYMS = {"dryrun": "offline", "run": "online", "shared": "online"}


def wandb_logger(
    folder: str | os.PathLike[str],
    mode: str = "auto",
    project: str = "fedhpo",
    name: str | None = None,
    group: str | None = "auto",
    tags: list[str] | None = None,
) -> ForgivingWandbLogger | None:
    """Return a logger that is running already, or None where there is to be none.

    Args:
        folder: The run's folder, where W&B's files go.
        mode: ``"online"``, ``"offline"``, ``"disabled"``, or ``"auto"``: what the environment's ``WANDB_MODE`` says,
            else online if the user is logged in and the server can be reached, else offline.
        project: The project's name.
        name: The run's name.
        group: The run's group; ``"auto"`` puts the jobs of a Hydra sweep together that differ in their seed alone, and
            leaves other runs without one.
        tags: The run's tags.
    """
    if mode not in MODES:
        raise ValueError(f"`mode` must be one of {', '.join(map(repr, MODES))}, got {mode!r}.")
    asked = (os.environ.get("WANDB_MODE") or "auto") if mode == "auto" else mode
    asked = _SYNONYMS.get(asked, asked)
    if asked == "disabled":
        return None
    reason = "" if asked == "offline" else obstacle()
    if reason and asked != "auto":
        rank_zero_warn(f"Weights & Biases: {reason}; the run is logged offline.")
    elif reason and logged_in():
        rank_zero_warn(f"Weights & Biases: {reason}; the run is logged offline. `logger.mode=offline` says so at once.")
    together = sweep_group() if group == "auto" else group
    options = {"project": project, "dir": os.fspath(folder), "name": name, "group": together, "tags": tags}
    Path(folder).mkdir(parents=True, exist_ok=True)
    attempts: tuple[Literal["online", "offline"], ...] = ("online", "offline")
    for attempt in attempts[1:] if asked == "offline" or reason else attempts:
        try:
            return ForgivingWandbLogger(_start(attempt, options), folder)
        except Exception as error:  # whatever it is: a logger must not stop a run
            rest = "the run is logged offline" if attempt == "online" else "the run goes on without it"
            rank_zero_warn(f"Weights & Biases did not start {attempt} ({_short(error)}); {rest}.")
    return None


class ForgivingWandbLogger(WandbLogger):
    """Lightning's logger on a run that has been started, silent for good once W&B fails.

    Args:
        run: The run, as ``wandb.init`` returns it.
        folder: Where its files are.
    """

    def __init__(self, run: Any, folder: str | os.PathLike[str]) -> None:
        super().__init__(experiment=run, project=run.project, name=run.name, id=run.id, save_dir=Path(folder))
        self._run = run
        self._failed = False

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log a round's figures."""
        self.attempt(lambda: WandbLogger.log_metrics(self, metrics, step))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Log the run's configuration."""
        self.attempt(lambda: WandbLogger.log_hyperparams(self, params))

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Do nothing: checkpoints stay in the run's folder."""

    def finalize(self, status: str) -> None:
        """Do nothing: the run ends with :meth:`conclude`, after its evaluation."""

    def conclude(self, summary: Mapping[str, Any] | None, failed: bool = False) -> None:
        """Log the run's summary and end it, so that the next run of the process starts one of its own."""
        if summary is not None:
            self.attempt(lambda: self._run.summary.update(dict(summary)))
        self.attempt(lambda: self._run.finish(exit_code=int(failed)))
        self._failed = True

    @property
    def whereabouts(self) -> str:
        """Where to look at the run."""
        if self._run.offline:
            return f"Weights & Biases is offline; to upload this run:\n  wandb sync {Path(self._run.dir).parent}"
        return f"Weights & Biases has it at {self._run.url}"

    def attempt(self, action: Callable[[], Any]) -> None:
        """Do something with the run, unless it has failed before; a failure is said once."""
        if self._failed:
            return
        try:
            action()
        except Exception as error:  # whatever it is: a logger must not stop a run
            self._failed = True
            rank_zero_warn(f"Weights & Biases failed ({_short(error)}): the run goes on without it.")


def obstacle() -> str:
    """Say what keeps a run from being online, or return an empty string: asks the server at most to open its door."""
    if not logged_in():
        return "nobody is logged in (`wandb login` does it)"
    address = urlsplit(server())
    if getproxies().get(address.scheme):  # what the proxy reaches shows when W&B starts
        return ""
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((host, port), timeout=REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        return f"{host}:{port} cannot be reached ({_short(error)})"
    return ""


def logged_in() -> bool:
    """Say whether there is a key for W&B's server, without asking the server."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    place = os.environ.get("NETRC")
    candidates = [place] if place else [os.path.expanduser("~/.netrc"), os.path.expanduser("~/_netrc")]
    hosts = {urlsplit(server()).netloc, urlsplit(DEFAULT_SERVER).netloc, "api.forge.coreweave.com"}
    for path in candidates:
        try:
            if hosts & netrc.netrc(path).hosts.keys():
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def server() -> str:
    """Return the address of W&B's server: the environment's, that of ``wandb login --host``, or the public one."""
    if os.environ.get("WANDB_BASE_URL"):
        return os.environ["WANDB_BASE_URL"]
    folder = Path(os.environ.get("WANDB_CONFIG_DIR") or os.path.expanduser("~/.config/wandb"))
    settings = configparser.ConfigParser(interpolation=None)
    try:
        settings.read(folder / "settings")
    except (OSError, configparser.Error):
        return DEFAULT_SERVER
    return settings.get("default", "base_url", fallback=DEFAULT_SERVER)


def _start(mode: Literal["online", "offline"], options: Mapping[str, Any]) -> Any:
    if mode == "offline":  # W&B's own error reports would call home before anybody is online
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb  # late: importing it takes half a second and reads the environment

    wanted: dict[str, Any] = {
        "silent": True,
        "console": "off",
        "disable_git": True,
        "disable_code": True,
        "init_timeout": INIT_SECONDS,
        "login_timeout": INIT_SECONDS,
        "finish_timeout": FINISH_SECONDS,
    }
    if server() != DEFAULT_SERVER:  # W&B reads the environment only once in a process
        wanted["base_url"] = server()
    there = wandb.Settings()
    known = {key: value for key, value in wanted.items() if hasattr(there, key)}
    return wandb.init(mode=mode, settings=wandb.Settings(**known), **options)


def _short(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
