"""Which errors of ``fedhpo`` are told in one line, and in which words."""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_fedhpo.files.folders import UnreadableError, UnwrittenError
from lightning_fedhpo.processes import LostProcessError
from lightning_fedhpo.setup.dry_run import ClientError

FULL_ERROR = "HYDRA_FULL_ERROR"
"""The variable of the environment with which errors come with a traceback."""
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


def failed(command: str, error: Exception, told: str) -> int:
    """Print why a command has failed, and return its exit code."""
    if FULL_ERROR in os.environ:
        raise error
    print(f"{command}: {told}", file=sys.stderr)
    return 1


def one_line(error: Exception, folder: Path) -> str:
    """Return what an error says about the files in a folder."""
    whole = str(error).rstrip().endswith(".") and isinstance(error, ValueError)  # our messages are sentences
    if isinstance(error, ModuleNotFoundError | OSError) or (whole and readable(error)):
        return str(error)
    told = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"{folder} has not the files of a run, or they are damaged ({told}). {FULL_ERROR}=1 shows where."


_TAKEN = re.compile(r"\$\{([\w.]+)\}")
_WORDS = {"None": "null", "True": "true", "False": "false"}
_CALL = re.compile(r"\b([A-Z]\w+)\((\w+=[^(),=]+(?:, \w+=[^(),=]+)*)\)")


def in_settings(text: str, cfg: DictConfig, only: str | None = None) -> str:
    """Return a message with the arguments of constructors as they are typed behind ``fedhpo``.

    `only` names the section that the message is about: what that takes from elsewhere has its name there.

    >>> cfg = OmegaConf.create({"search": {"_target_": "a.Halving", "budget": 9, "rounds": "${trainer.max_epochs}"}})
    >>> in_settings("take Halving(rounds=4, budget=40) or Other(rounds=4).", cfg)
    'take search.rounds=4 search.budget=40 or Other(rounds=4).'
    >>> in_settings("take Halving(rounds=4).", cfg, "search")
    'take trainer.max_epochs=4.'
    """
    plain: Any = OmegaConf.to_container(cfg, resolve=False)
    sections = {str(key): value for key, value in plain.items() if isinstance(value, dict) and only in (None, key)}
    kinds = [str(section.get("_target_")).rpartition(".")[2] for section in sections.values()]
    keys = {kind: key for kind, key in zip(kinds, sections, strict=True) if kinds.count(kind) == 1}

    def typed(call: re.Match[str]) -> str:
        name, arguments = call.groups()
        if name not in keys:
            return call[0]
        told = []
        for argument, _, value in (one.partition("=") for one in arguments.split(", ")):
            taken = _TAKEN.fullmatch(str(sections[keys[name]].get(argument))) if only else None
            told.append(f"{taken[1] if taken else f'{keys[name]}.{argument}'}={_WORDS.get(value, value)}")
        return " ".join(told)

    return _CALL.sub(typed, text)
