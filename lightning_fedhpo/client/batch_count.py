"""How many batches a client's examples make."""

from __future__ import annotations

import math


def batches_of(examples: int, batch_size: int, drop_last: bool, limit: int | float) -> int:
    """Return how many batches a pass over a client takes; one at least, whatever ``drop_last`` says.

    >>> batches_of(120, 16, False, 1.0), batches_of(120, 16, True, 1.0), batches_of(10, 16, True, 1.0)
    (8, 7, 1)
    >>> batches_of(120, 16, False, 0.5), batches_of(120, 16, False, 3)
    (4, 3)
    """
    count = examples // batch_size if drop_last and examples >= batch_size else math.ceil(examples / batch_size)
    if isinstance(limit, float):
        return max(1, int(count * limit)) if limit else 0
    return min(count, limit)
