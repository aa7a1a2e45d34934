"""The processes that share the jobs of a run which `fedhpo` has begun."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import OmegaConf

from lightning_fedhpo import processes
from lightning_fedhpo.cli import build
from lightning_fedhpo.cli.resume import how_to_resume, present_arguments


def command(config: Path) -> list[str]:
    """Return the command of such a process: the run's configuration, without Hydra."""
    call = (
        f"from lightning_fedhpo.cli.worker import work; work({str(config)!r}, {present_arguments()!r}, {os.getpid()})"
    )
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {call}"]


def work(config: str, arguments: Sequence[str], parent: int) -> None:
    """Share the jobs of a run that process `parent` has begun, which speaks for all. `arguments` resume it."""
    from lightning_fedhpo.cli.main import train  # late: it imports this module

    cfg: Any = OmegaConf.load(config)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
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
            if processes.is_silent(error) or isinstance(error, MisconfigurationException):
                sys.exit(1)
            if not isinstance(error, processes.LostProcessError):
                raise
            if os.getppid() == parent:  # it tells what happened
                sys.exit(1)
            message = f"fedhpo: {error}"
    folder = Path(cfg.folder).absolute()
    print(message, how_to_resume(build.checkpoint_folder(cfg, folder), folder, arguments), sep="\n", file=sys.stderr)
    sys.exit(1)


def _end_with_parent(parent: int) -> None:
    """End this process if its parent is gone before the two have met: torch would wait for half an hour."""
    while processes.world() == 1:
        if os.getppid() != parent:
            os._exit(1)
        time.sleep(0.02)  # short: a meeting that breaks between two looks would be taken for none
