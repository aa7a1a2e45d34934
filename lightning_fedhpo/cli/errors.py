"""Which errors of ``fedhpo`` are told in one line."""

from __future__ import annotations

import traceback
from pathlib import Path

from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf.errors import OmegaConfBaseException

from lightning_fedhpo.files.folders import UnreadableError, UnwrittenError
from lightning_fedhpo.processes import LostProcessError
from lightning_fedhpo.setup.dry_run import ClientError

PACKAGE = str(Path(__file__).parents[1])
READABLE = (
    MisconfigurationException
    | OmegaConfBaseException
    | LostProcessError
    | UnwrittenError
    | UnreadableError
    | ClientError
)
"""Errors whose message is enough, wherever they were raised."""
ARGUMENTS = ValueError | TypeError | FileNotFoundError | ModuleNotFoundError | ConnectionError
"""Errors whose message is enough if this package raised them: they are about a wrong setting."""


def readable(error: BaseException) -> bool:
    """Return whether an error's message says enough without a traceback."""
    if isinstance(error, READABLE) or (error.__cause__ is not None and readable(error.__cause__)):
        return True
    *_, raised = traceback.extract_tb(error.__traceback__) or [None]
    return raised is not None and raised.filename.startswith(PACKAGE) and isinstance(error, ARGUMENTS)
