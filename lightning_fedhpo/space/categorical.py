"""The dimension of a search space that lists its values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from lightning_fedhpo.arguments import is_number, shown
from lightning_fedhpo.space.dimensions import Dimension, Int, Value, steps

MOST_OPTIONS = 10**4
_PLAIN = (bool, int, float, str, type(None))


def _position(options: tuple[Value, ...], value: object) -> int | None:
    # True equals 1 in Python, and is another hyperparameter.
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, _PLAIN):
        for i, option in enumerate(options):
            if option == plain and isinstance(option, bool) == isinstance(plain, bool):
                return i
    return None


def _is_monotone(options: tuple[Any, ...]) -> bool:
    return all(map(is_number, options)) and list(options) in (sorted(options), sorted(options, reverse=True))


class Choice(Dimension[Value]):
    """One of the given options: numbers, texts, true and false, or none.

    Ordered options have neighbours, the next ones in the list. Others have none: below ``epsilon=1`` a perturbation
    keeps them. Numbers in rising or in falling order are ordered, everything else is not, unless ``ordered`` says so.

    Args:
        options: The options, all different.
        ordered: Whether neighbours in the list are alike. Found out from the options if not given.

    >>> batch_size = Choice([8, 16, 32, 64, 128])
    >>> batch_size.around(16, epsilon=0.25)  # one step, 4 * 0.25, to both sides
    Choice([8, 16, 32])
    >>> Choice(["relu", "gelu"]).around("gelu", epsilon=0.25)
    Choice(['gelu'])
    """

    options: tuple[Value, ...]
    ordered: bool

    def __init__(self, options: Iterable[Value], ordered: bool | None = None) -> None:
        if isinstance(options, (str, bytes, Mapping)) or not isinstance(options, Iterable):
            raise TypeError(f"The options of Choice must be a list, got {shown(options)}.")
        first = islice(options, MOST_OPTIONS + 1)
        plain = tuple(option.item() if isinstance(option, np.generic) else option for option in first)
        if len(plain) > MOST_OPTIONS:
            raise ValueError(f"Choice has at most {MOST_OPTIONS} options, got more: take an Int or a Float.")
        if not plain:
            raise ValueError("Choice must have at least one option, got none: to keep a default, drop the whole entry.")
        seen = set()
        for option in plain:
            if not isinstance(option, _PLAIN):
                raise TypeError(f"An option of Choice is a number, text, true, false or none, got {shown(option)}.")
            if is_number(option) and not math.isfinite(option):
                raise ValueError(f"A number among the options of Choice must be finite, got {shown(option)}.")
            if (isinstance(option, bool), option) in seen:
                raise ValueError(f"The options of Choice must all be different, got {option!r} twice: drop one.")
            seen.add((isinstance(option, bool), option))
        if ordered is not None and not isinstance(ordered, bool):
            raise TypeError(f"`ordered` of Choice must be true, false or left out, got {shown(ordered)}.")
        vars(self).update(options=plain, ordered=_is_monotone(plain) if ordered is None else ordered)

    def __repr__(self) -> str:
        is_inferred = self.ordered == _is_monotone(self.options)
        return f"Choice({list(self.options)!r}{'' if is_inferred else f', ordered={self.ordered}'})"

    def __contains__(self, value: object) -> bool:
        return _position(self.options, value) is not None

    def quantile(self, fraction: float) -> Value:
        """Return the value that this fraction of all draws does not exceed."""
        return self.options[Int(0, len(self.options) - 1).quantile(fraction)]

    def _clip(self, value: Any) -> Value:
        index = _position(self.options, value)
        if index is not None:
            return self.options[index]
        numbers = [option for option in self.options if is_number(option)]
        if len(numbers) < len(self.options):
            raise ValueError(f"A number that is no option can be clipped to numbers only, not to {self!r}: {value!r}.")
        return min(numbers, key=lambda option: abs(option - value))

    def _grid(self, fractions: list[float]) -> list[Value]:
        last = len(self.options) - 1
        return [self.options[index] for index in dict.fromkeys(round(last * fraction) for fraction in fractions)]

    def _around(self, value: Value, epsilon: float) -> Choice:
        index = _position(self.options, value) or 0
        count = steps(len(self.options) - 1, epsilon) if self.ordered else 0
        return Choice(self.options[max(index - count, 0) : index + count + 1], ordered=self.ordered)
