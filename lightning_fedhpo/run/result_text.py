"""A result in words: its repr, a table for notebooks, and what a run says of itself while it goes on."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from lightning_fedhpo.arms.arm import Arm
from lightning_fedhpo.run.population import Population

if TYPE_CHECKING:
    from lightning_fedhpo.run.result import Result

LOGGER = logging.getLogger("lightning_fedhpo")
LOGGER.setLevel(logging.INFO)
if not logging.getLogger().hasHandlers():  # a script without logging of its own sees the lines, as Lightning's
    LOGGER.addHandler(logging.StreamHandler())
    LOGGER.propagate = False


def value_text(value: Any) -> str:
    """Return a value in three digits.

    >>> value_text(0.012345), value_text(128), value_text(1e-5), value_text("adam")
    ('0.0123', '128', '1e-05', 'adam')
    """
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def config_text(config: Mapping[str, Any], between: str = ", ") -> str:
    """Return a configuration by names and values.

    >>> config_text({"lr": 0.1, "epochs": 2})
    'lr 0.1, epochs 2'
    """
    return between.join(f"{name} {value_text(value)}" for name, value in config.items())


def described(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what a result says of itself: a word, and a line."""
    arm = result.arms[result.best_arm]
    score = "no score" if result.score is None else f"{result.monitor} {result.score:.4g}"
    anew = ", trained anew" if result.best_arm != result.best_searched else ""
    rounds = f"after {arm['rounds']} rounds{meaning(result)}"
    yield "best", f"arm {result.best_arm} of {len(result.arms)}{anew}: {score} {rounds}"
    for side in ("client", "server"):
        if values := result.best[side]:
            yield side, config_text(values)
    if "clients" in result.best:
        yield "clients", f"a configuration for each of {len(result.best['clients'])}, in .best['clients']"
    counts = {**result.ledger, **({} if result.retraining is None else {"retraining": result.retraining["rounds"]})}
    shown = ("rounds", "client_updates", "local_steps", "retraining")
    yield "spent", ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in shown if name in counts)


def meaning(result: Result) -> str:
    """Return which model the score is of; of a personalized one also what the global model's is."""
    if result.score is None:
        return ""
    if result.target != "personalized":
        return ", by the global model" + (" on the server's examples" if result.target == "server" else "")
    of_best = [row for row in result.history if row["arm"] == result.best_arm]
    before = of_best[-1].get(f"val/{result.monitor}") if of_best else None
    known = "is scored by score_before=True" if before is None else f"that they began with has {before:.4g}"
    return f", of clients' models after their own training (the global model {known})"


def text(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a line for each word.

    >>> print(text("Result", [("best", "arm 0 of 2"), ("spent", "3 rounds")]))
    Result
      best     arm 0 of 2
      spent    3 rounds
    """
    return "\n".join([title, *(f"  {word:<9}{line}" for word, line in rows)])


def html(rows: Iterable[tuple[str, str]]) -> str:
    """Return a small table for notebooks."""
    cell = '<td style="text-align: left">{}</td>'
    lines = (f"<tr>{cell.format(escape(word))}{cell.format(escape(line))}</tr>" for word, line in rows)
    return f"<table>{''.join(lines)}</table>"


@rank_zero_only
def tell_eliminated(eliminated: Sequence[Arm], arms: Population, monitor: str | None) -> None:
    """Log which arms a round has taken out, and which one is the best so far, if one has a score."""
    if not eliminated:
        return
    best, live = arms.best, len(arms.live)
    numbers = ", ".join(str(arm.index) for arm in eliminated[:10]) + (", ..." if len(eliminated) > 10 else "")
    first = f"the best is arm {best.index} with {monitor} {best.scores[-1]:.4g}"
    LOGGER.info(
        f"After {eliminated[0].rounds} rounds {len(eliminated)} of {len(eliminated) + live} arms were eliminated "
        f"({numbers}); {first if math.isfinite(best.scores[-1]) else 'none has a finite score'}."
    )


@rank_zero_only
def tell_found(result: Result) -> None:
    """Log what a run has found and spent."""
    line = "; ".join(f"{word} {line}" for word, line in described(result))
    LOGGER.info(f"{line[0].upper()}{line[1:]}.")
    if torch.initial_seed() > _LARGEST_SEED:
        LOGGER.info(
            "Nobody has seeded torch: if the module's weights were drawn at random, the next run starts from others "
            "and may find something else. Call lightning.seed_everything(...) before the module is made."
        )


_LARGEST_SEED = 2**32
"""What torch draws for itself where nobody seeds it has up to 53 bits; seeds that people choose are small."""
