"""The dimensions of a search space: what one hyperparameter may be.

``quantile`` maps [0, 1] onto the dimension, ``sample`` is the quantile of one ``rng.random()``. ``around`` is the part
of the dimension near a value, itself a dimension.

The neighbourhoods are those of FedEx (Khodak et al., Federated Hyperparameter Tuning, NeurIPS 2021). Deviation: where
the paper rounds the number of discrete steps up on the upper side and down on the lower, here both are rounded up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from lightning_fedhpo.arguments import is_number, is_whole, shown

if TYPE_CHECKING:
    from typing_extensions import Self

Value: TypeAlias = bool | int | float | str | None
V = TypeVar("V", bound=Value)


def steps(width: int, epsilon: float) -> int:
    """Return the discrete steps in a share of a width, rounded up."""
    return math.ceil(round(width * epsilon, 9))  # 100 * 0.07 is 7.000000000000001 in floating point


def _check_bounds(kind: str, low: float, high: float, log: bool, are_right_type: bool, rule: str) -> None:
    if not isinstance(log, bool):
        raise TypeError(f"`log` of {kind} must be true or false, got {shown(log)}.")
    if not are_right_type:
        raise TypeError(f"The bounds of {kind} must be {rule}, got {shown(low)} and {shown(high)}.")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"The bounds of {kind} must be finite, got {low!r} and {high!r}.")
    if low > high:
        raise ValueError(f"The lower bound of {kind} comes first, got {low!r} and {high!r}: swap them.")
    if log and low <= 0:
        raise ValueError(f"A log scale needs bounds above zero, got {low!r} and {high!r}: raise the lower one.")


class Dimension(ABC, Generic[V]):
    """What ``Float``, ``Int`` and ``Choice`` have in common.

    They cannot be changed, and equal ones are written alike. OmegaConf would take dataclasses apart, so they are none.
    """

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A dimension cannot be changed, got a new `{name}` for {self!r}: make another one.")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    @abstractmethod
    def __contains__(self, value: object) -> bool:
        """Say whether the dimension has this value."""

    @abstractmethod
    def quantile(self, fraction: float) -> V:
        """Return the value that this fraction of all draws does not exceed."""

    @abstractmethod
    def _clip(self, value: Any) -> V:
        """Return the nearest value inside."""

    @abstractmethod
    def _grid(self, fractions: list[float]) -> list[V]:
        """Return the values at some fractions of the scale."""

    @abstractmethod
    def _around(self, value: Any, epsilon: float) -> Self:
        """Return the neighbourhood of a value as a dimension."""

    def sample(self, rng: np.random.Generator) -> V:
        """Draw a value, uniform on the scale."""
        return self.quantile(rng.random())

    def around(self, value: V, epsilon: float) -> Self:
        """Return all values within ``epsilon`` times the dimension's width of this one, as a dimension.

        With an ``epsilon`` of 0 that is the value alone, with 1 the whole dimension.
        """
        return self if epsilon == 1 else self._around(self._clip(value), epsilon)

    def clip(self, value: Any) -> V:
        """Return the nearest value that the dimension has."""
        if value in self or (is_number(value) and not math.isnan(value)):
            return self._clip(value)
        raise ValueError(f"Only a number or one of its values can be clipped to {self!r}, got {value!r}.")

    def grid(self, n: int) -> list[V]:
        """Return n values from one end to the other, even on the scale; fewer where there are not n different ones."""
        return self._grid([i / (n - 1) for i in range(n)] if n > 1 else [0.5])

    def to_dict(self) -> dict[str, Any]:
        """Return the dimension as JSON holds it: its type and the constructor's arguments."""
        arguments = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {"type": type(self).__name__.lower(), **arguments}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the dimension that ``to_dict`` wrote, or that a YAML file describes in the same way."""
        arguments = {name: value for name, value in data.items() if name not in ("type", "_target_")}
        try:
            return cls(**arguments)
        except TypeError as error:  # an argument too many or too few: Python's message names it
            raise TypeError(f"A {cls.__name__} cannot be made of {arguments!r}: {error}") from error


class Float(Dimension[float]):
    """A real number from low to high.

    Args:
        low: The lower bound, included.
        high: The upper bound, included.
        log: Whether draws, neighbourhoods and grids are even in the logarithm.

    >>> lr = Float(1e-4, 1.0, log=True)
    >>> lr.grid(5), lr.clip(3)
    ([0.0001, 0.001, 0.01, 0.1, 1.0], 1.0)
    >>> lr.around(0.01, epsilon=0.25)
    Float(0.001, 0.1, log=True)
    """

    low: float
    high: float
    log: bool

    def __init__(self, low: float, high: float, log: bool = False) -> None:
        rule = "numbers (plain YAML takes 1e-4 for text: write 1.0e-4)"
        _check_bounds("Float", low, high, log, is_number(low) and is_number(high), rule)
        vars(self).update(low=float(low), high=float(high), log=log)

    def __repr__(self) -> str:
        return f"Float({self.low!r}, {self.high!r}{', log=True' if self.log else ''})"

    def __contains__(self, value: object) -> bool:
        return is_number(value) and bool(self.low <= value <= self.high)

    def quantile(self, fraction: float) -> float:
        """Return the value that this fraction of all draws does not exceed."""
        if fraction in (0.0, 1.0):  # exactly the bound
            return self.high if fraction else self.low
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        point = low + (high - low) * fraction
        return self._clip(10.0**point if self.log else point)

    def _clip(self, value: float) -> float:
        return min(max(float(value), self.low), self.high)

    def _grid(self, fractions: list[float]) -> list[float]:
        return list(dict.fromkeys(map(self.quantile, fractions)))

    def _around(self, value: float, epsilon: float) -> Float:
        if epsilon == 0:  # exactly the value
            return Float(value, value, self.log)
        if not self.log:
            radius = (self.high - self.low) * epsilon
            return Float(self._clip(value - radius), self._clip(value + radius))
        low, high, middle = math.log10(self.low), math.log10(self.high), math.log10(value)
        radius = (high - low) * epsilon
        bottom, top = max(low, middle - radius), min(high, middle + radius)
        return Float(self._clip(min(10.0**bottom, value)), self._clip(max(10.0**top, value)), log=True)


class Int(Dimension[int]):
    """A whole number from low to high.

    Args:
        low: The smallest number.
        high: The largest number.
        log: Whether draws, neighbourhoods and grids are even in the logarithm. A number is then as likely as the
            reals that round to it.

    >>> epochs = Int(1, 5)
    >>> epochs.grid(3), epochs.clip(9)
    ([1, 3, 5], 5)
    >>> epochs.around(4, epsilon=0.3)  # two steps, ceil(4 * 0.3), to both sides: 2 to 6, and 6 is outside
    Int(2, 5)
    """

    low: int
    high: int
    log: bool

    def __init__(self, low: int, high: int, log: bool = False) -> None:
        _check_bounds("Int", low, high, log, is_whole(low) and is_whole(high), "whole numbers (Float takes fractions)")
        vars(self).update(low=int(low), high=int(high), log=log)

    def __repr__(self) -> str:
        return f"Int({self.low!r}, {self.high!r}{', log=True' if self.log else ''})"

    def __contains__(self, value: object) -> bool:
        return is_whole(value) and bool(self.low <= value <= self.high)

    def quantile(self, fraction: float) -> int:
        """Return the value that this fraction of all draws does not exceed."""
        if not self.log:
            return self._clip(self.low + math.floor((self.high - self.low + 1) * fraction))
        return self._clip(Float(self.low - 0.5, self.high + 0.5, log=True).quantile(fraction))

    def _clip(self, value: float) -> int:
        return round(min(max(value, self.low), self.high))

    def _grid(self, fractions: list[float]) -> list[int]:
        # Rounded from the reals: this class's own quantiles put both ends half a step further out.
        reals = Float(self.low, self.high, self.log)
        return list(dict.fromkeys(self._clip(reals.quantile(fraction)) for fraction in fractions))

    def _around(self, value: int, epsilon: float) -> Int:
        if self.log and epsilon > 0:
            factor = (self.high / self.low) ** epsilon
            bottom, top = math.floor(round(value / factor, 9)), math.ceil(round(value * factor, 9))
        else:
            count = steps(self.high - self.low, epsilon)
            bottom, top = value - count, value + count
        return Int(max(bottom, self.low), min(top, self.high), self.log)
