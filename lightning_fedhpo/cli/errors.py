"""What ``fedhpo`` says when a run fails or is interrupted."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf.errors import OmegaConfBaseException

from lightning_fedhpo.processes import LostProcessError
from lightning_fedhpo.run.checkpoint_file import SUFFIX, UnwrittenError, newest
from lightning_fedhpo.setup.dry_run import ClientError

PACKAGE = str(Path(__file__).parents[1])
READABLE = MisconfigurationException | OmegaConfBaseException | LostProcessError | UnwrittenError | ClientError
"""Errors whose message is enough, wherever they were raised."""
ARGUMENTS = ValueError | TypeError | FileNotFoundError | ModuleNotFoundError | ConnectionError
"""Errors whose message is enough if this package raised them: they are about a wrong setting."""


def readable(error: BaseException) -> bool:
    """Return whether an error's message says enough without a traceback."""
    if isinstance(error, READABLE) or (error.__cause__ is not None and readable(error.__cause__)):
        return True
    *_, raised = traceback.extract_tb(error.__traceback__) or [None]
    return raised is not None and raised.filename.startswith(PACKAGE) and isinstance(error, ARGUMENTS)


def how_to_resume(folder: Path, overrides: Sequence[str] | None = None) -> str:
    """Return the command that resumes a run from the newest checkpoint that loads."""
    path = newest(folder.glob(f"*{SUFFIX}"))
    if path is None:
        return "\nInterrupted before there was anything to resume from."
    own = hydra_overrides() if overrides is None else overrides
    kept = [one for one in own if not one.lstrip("+").startswith("ckpt_path=")]
    return f"\nInterrupted. To go on:\n  {shlex.join(['fedhpo', *kept, f'ckpt_path={path}'])}"


def hydra_overrides() -> list[str]:
    """Return the overrides of the present Hydra job; none outside of Hydra."""
    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
