"""Which runs below a folder are not finished, or never began though their sweep has them."""

from __future__ import annotations

import shlex
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ValueType
from omegaconf import OmegaConf

from lightning_fedhpo.cli.resume import in_order, lasting, quoted
from lightning_fedhpo.files.reading import reading
from lightning_fedhpo.tracking.run_files import FAILED, RUN_RECORD, SUMMARY, SWEEP_RECORD


def missing(folder: Path) -> list[str]:
    """Return a line for each run below a folder that has no summary, and the commands that go on with sweeps."""
    runs = {path.parents[1]: _overrides(path) for path in sorted(folder.rglob(str(RUN_RECORD)))}
    unfinished = [run for run in runs if not (run / SUMMARY).is_file()]
    lines = [f"  {run.relative_to(folder)}  {' '.join(runs[run])}  {_state(run)}" for run in unfinished]
    commands = []
    for sweep in [path.parent for path in sorted(folder.rglob(str(SWEEP_RECORD)))]:
        begun = [overrides for run, overrides in runs.items() if sweep in run.parents]
        left = [job for job in planned(sweep) if job not in begun]
        lines += [f"  {sweep.relative_to(folder) / '-'}  {' '.join(job)}  not begun" for job in left]
        if left or any(sweep in run.parents for run in unfinished):
            commands.append(shlex.join(["fedhpo", "-m", f"hydra.sweep.dir={quoted(sweep.absolute())}", "resume=true"]))
    way_out = ["To go on:", *(f"  {command}" for command in commands)] if commands else []
    return [f"Missing runs: {len(lines)}", *lines, *way_out] if lines else []


def planned(sweep: Path) -> list[list[str]]:
    """Return the overrides of all runs of a sweep, in their order; none where only its sweeper knows them."""
    with reading(sweep / SWEEP_RECORD):
        return _planned(OmegaConf.load(sweep / SWEEP_RECORD).hydra)


def _planned(hydra: Any) -> list[list[str]]:
    params = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items()]
    parsed = OverridesParser.create().parse_overrides([*params, *lasting(hydra.overrides.task)])
    if not in_order(hydra) or any(one.value_type == ValueType.GLOB_CHOICE_SWEEP for one in parsed):
        return []
    values: dict[str, list[str]] = {}
    for one in parsed:
        several = one.sweep_string_iterator() if one.is_sweep_override() else [one.get_value_element_as_str()]
        values[one.get_key_element()] = [f"{one.get_key_element()}={value}" for value in several]
    return [list(job) for job in product(*values.values())]


def _overrides(record: Path) -> list[str]:
    with reading(record):
        return lasting(OmegaConf.load(record).hydra.overrides.task)


def _state(run: Path) -> str:
    failed = run / FAILED
    if not failed.is_file():
        return "not finished"
    return f"failed: {''.join(failed.read_text(encoding='utf-8', errors='replace').splitlines()[:1])}"
