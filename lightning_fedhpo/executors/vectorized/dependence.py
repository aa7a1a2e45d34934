"""Whether a step lets examples of a batch meet, by changing one of them after the other.

The kinds of operations tell what happens to whole dimensions. That rows are brought together by their places, as in
``z[torch.arange(n) - 1]`` or ``mixing @ z``, shows in numbers only: what an operation returns then depends on two
examples. It is looked at where it happens, so that a factor of zero behind it hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.executors.vectorized.tape import Tape

_ROUNDING = 1e-5
"""Differences smaller than this, of what the numbers are, are none."""


def examples_behind(run: Callable[[Sequence[int]], Tape], size: int, count: int) -> list[list[Tensor]]:
    """Return for the results of every operation on how many of a batch's examples their elements depend.

    Args:
        run: Runs the step on a batch of these rows of the data, and keeps the results.
        size: Examples of the batch: the first rows.
        count: Rows that there are.
    """
    rows = [place % count for place in range(size)]
    tape = run(rows)
    found = [[torch.zeros(value.shape, dtype=torch.int8) for value in values] for values in tape.values]
    for place in range(size):
        instead = (size + place) % count
        if instead == rows[place]:
            instead = (instead + 1) % count
        other = run([*rows[:place], instead, *rows[place + 1 :]])
        if [one.func for one in other.operations] != [one.func for one in tape.operations]:
            raise CannotBatchError("its step does not do the same with all examples")
        for counts, values, others in zip(found, tape.values, other.values, strict=True):
            for number, value, changed in zip(counts, values, others, strict=True):
                if value.shape != changed.shape:
                    raise CannotBatchError("its step does not do the same with all examples")
                number += _differs(value, changed)
    return found


def _differs(one: Tensor, other: Tensor) -> Tensor:
    if not one.is_floating_point():
        return one != other
    return ~torch.isclose(one, other, rtol=_ROUNDING, atol=0.0, equal_nan=True)
