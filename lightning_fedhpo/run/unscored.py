"""End a search that has nothing to decide by: no arm that it could compare has ever had a score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lightning_fedhpo.run.population import Population
from lightning_fedhpo.run.run_parts import RunParts


class UnscoredError(ValueError):
    """Arms are to be eliminated, or the best one to be found, and none of them has a score."""


def check(parts: RunParts, arms: Population, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise if arms were eliminated in a round, or the search is over, and none of them has ever had a score."""
    options, search, trainer = parts.options, parts.search, parts.trainer
    learns = search.needs_scores or parts.tuner.needs_scores
    if not learns or options.monitor is None or arms.retrained is not None or trainer.fast_dev_run:
        return
    present = [arms[row["arm"]] for row in rows]
    eliminated = [arm for arm in present if arm.eliminated_at is not None]
    over = search.done(arms) or rows[0]["round"] + 1 == trainer.max_epochs
    compared = present if eliminated else [arm for arm in arms if over and arm.eliminated_at is None]
    if not compared or any(math.isfinite(score) for arm in compared for score in arm.scores):
        return
    count, able = options.cohort, int((parts.data.sizes("val") > 0).sum())
    why = (
        "the server's examples have given no finite score, so look for values that are not finite in `server_data`, "
        "and in what `validation_step` logs."
        if options.target == "server"
        else f"{able} of {len(parts.data)} clients have validation examples, and none took part in a cohort of "
        f"{count}. Take a larger cohort, raise the second of `fractions`, or score on the server's examples "
        '(server_data=..., target="server").'
    )
    what = f"{len(eliminated)} arms were to be eliminated" if eliminated else "the search is over"
    raise UnscoredError(f"{what} after round {rows[0]['round']}, and no arm has ever had a score: {why}")
