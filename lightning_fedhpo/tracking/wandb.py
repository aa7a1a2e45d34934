"""The logger for Weights & Biases. It never stops a run.

W&B runs offline unless the user is logged in or asks otherwise. A failure is reported once, and the run goes on:
without a server, W&B writes files into the run's folder, and without those there is no logger.
"""

from __future__ import annotations

import configparser
import netrc
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lightning_fedhpo.arguments import check_kinds
from lightning_fedhpo.files.folders import make_folder
from lightning_fedhpo.tracking.sweep import sweep_group

DEFAULT_SERVER = "https://api.wandb.ai"
CONNECT_SECONDS = 3.0
"""Timeout of the test whether the server can be reached."""
INIT_SECONDS = 10.0
"""Timeout of W&B's start."""
FINISH_SECONDS = 60.0
"""Timeout of the upload at the end. The rest stays on disk, for ``wandb sync``."""

_SYNONYMS = {"dryrun": "offline", "run": "online", "shared": "online"}


def wandb_logger(
    folder: str | os.PathLike[str],
    mode: Literal["auto", "online", "offline", "disabled"] = "auto",
    project: str = "fedhpo",
    name: str | None = None,
    group: str | None = "auto",
    tags: list[str] | None = None,
) -> ForgivingWandbLogger | None:
    """Start a run in W&B and return its logger; None if W&B is disabled or does not start.

    Args:
        folder: The run's folder, for W&B's files.
        mode: ``"online"``, ``"offline"``, ``"disabled"`` or ``"auto"``. The latter takes ``WANDB_MODE`` of the
            environment; without it, online if the user is logged in and the server can be reached, else offline.
        project: The project's name.
        name: The run's name.
        group: The run's group. ``"auto"`` makes a group of the runs of a Hydra sweep that differ only in their seed.
        tags: The run's tags.
    """
    check_kinds(wandb_logger, locals())
    asked = (os.environ.get("WANDB_MODE") or "auto") if mode == "auto" else mode
    asked = _SYNONYMS.get(asked, asked)
    if asked == "disabled":
        return None
    reason = "" if asked == "offline" else obstacle()
    if reason and (asked != "auto" or logged_in()):
        advice = " `logger.mode=offline` says so at once." if asked == "auto" else ""
        rank_zero_warn(f"Weights & Biases: {reason}; the run is logged offline.{advice}")
    group = sweep_group() if group == "auto" else group
    options = {"project": project, "dir": os.fspath(folder), "name": name, "group": group, "tags": tags}
    make_folder("folder", Path(folder))
    attempts: tuple[Literal["online", "offline"], ...] = ("online", "offline")
    for attempt in attempts[1:] if asked == "offline" or reason else attempts:
        try:
            return ForgivingWandbLogger(_start(attempt, options), folder)
        except Exception as error:  # a logger must not stop a run
            rest = "the run is logged offline" if attempt == "online" else "the run goes on without it"
            rank_zero_warn(f"Weights & Biases did not start {attempt} ({_short(error)}); {rest}.")
    return None


class ForgivingWandbLogger(WandbLogger):
    """Lightning's logger for a run that ``wandb.init`` has started. It stops logging when W&B fails."""

    def __init__(self, run: Any, folder: str | os.PathLike[str]) -> None:
        super().__init__(experiment=run, project=run.project, name=run.name, id=run.id, save_dir=Path(folder))
        self._run = run
        self._failed = False

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the figures of a round."""
        self.attempt(lambda: WandbLogger.log_metrics(self, metrics, step))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Log the run's configuration."""
        self.attempt(lambda: WandbLogger.log_hyperparams(self, params))

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Do nothing. Checkpoints stay in the run's folder."""

    def finalize(self, status: str) -> None:
        """Do nothing. :meth:`conclude` ends the run, after the final test."""

    def conclude(self, summary: Mapping[str, Any] | None, failed: bool = False) -> None:
        """Log the summary and end the run."""
        if summary is not None:
            self.attempt(lambda: self._run.summary.update(dict(summary)))
        self.attempt(lambda: self._run.finish(exit_code=int(failed)))
        self._failed = True

    @property
    def whereabouts(self) -> str:
        """Where to find the run."""
        if self._run.offline:
            return f"Weights & Biases is offline; to upload this run:\n  wandb sync {Path(self._run.dir).parent}"
        return f"Weights & Biases has it at {self._run.url}"

    def attempt(self, action: Callable[[], Any]) -> None:
        """Call an action on the run, unless one has failed before. A failure is reported once."""
        if self._failed:
            return
        try:
            action()
        except Exception as error:  # a logger must not stop a run
            self._failed = True
            rank_zero_warn(f"Weights & Biases failed ({_short(error)}): the run goes on without it.")


def obstacle() -> str:
    """Return why a run cannot be online; an empty string if it can. No login is tried."""
    if not logged_in():
        return "nobody is logged in (`wandb login` does it)"
    address = urlsplit(server())
    if getproxies().get(address.scheme):  # W&B's start shows what the proxy can reach
        return ""
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        return f"{host}:{port} cannot be reached ({_short(error)})"
    return ""


def logged_in() -> bool:
    """Return whether there is a key for W&B's server."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    hosts = {urlsplit(server()).netloc, urlsplit(DEFAULT_SERVER).netloc, "api.forge.coreweave.com"}
    chosen = os.environ.get("NETRC")
    for path in [chosen] if chosen else ["~/.netrc", "~/_netrc"]:
        with suppress(OSError, netrc.NetrcParseError):
            if hosts & netrc.netrc(os.path.expanduser(path)).hosts.keys():
                return True
    return False


def server() -> str:
    """Return the server's address: from the environment, from ``wandb login --host``, or the public one."""
    if os.environ.get("WANDB_BASE_URL"):
        return os.environ["WANDB_BASE_URL"]
    folder = Path(os.environ.get("WANDB_CONFIG_DIR") or os.path.expanduser("~/.config/wandb"))
    settings = configparser.ConfigParser(interpolation=None)
    with suppress(OSError, configparser.Error):
        settings.read(folder / "settings")
    return settings.get("default", "base_url", fallback=DEFAULT_SERVER)


def _start(mode: Literal["online", "offline"], options: Mapping[str, Any]) -> Any:
    if mode == "offline":  # W&B's error reports would use the network
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb  # late: it takes half a second and reads the environment

    wanted: dict[str, Any] = {"silent": True, "console": "off", "disable_git": True, "disable_code": True}
    wanted |= {"init_timeout": INIT_SECONDS, "login_timeout": INIT_SECONDS, "finish_timeout": FINISH_SECONDS}
    if server() != DEFAULT_SERVER:  # W&B reads the environment only once in a process
        wanted["base_url"] = server()
    known = {key: value for key, value in wanted.items() if hasattr(wandb.Settings(), key)}  # versions differ
    return wandb.init(mode=mode, settings=wandb.Settings(**known), **options)


def _short(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
