"""Checks of arguments in public constructors: types by the signature, then bounds.

A constructor begins with ``check_kinds(TheClass, locals())`` and goes on with :func:`whole` and :func:`number`, which
return plain Python numbers, also for numpy's: a safely loaded checkpoint cannot hold the latter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from difflib import get_close_matches
from itertools import islice
from numbers import Integral, Real
from types import NoneType, TracebackType, UnionType
from typing import Any, Literal, ParamSpec, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from lightning.pytorch.utilities.exceptions import MisconfigurationException

P = ParamSpec("P")
R = TypeVar("R")

MOST = 10**9  # no count of anything is meant to be larger
MOST_EPOCHS = 10**4  # a client's training with more of them would not end

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "None"}
_OTHERS = {Sequence: "a sequence", Mapping: "a mapping", Callable: "a function"}


def is_number(value: object) -> TypeGuard[float]:
    """Say whether this is a real number; true and false are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Say whether this is an integer by type; true and false are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_kinds(of: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse arguments of another kind than a signature says.

    ``given`` has the arguments by name, such as ``locals()``; what the signature does not have is left alone.

    >>> def train(mode: Literal["min", "max"], verify: bool = True) -> None:
    ...     check_kinds(train, locals())
    >>> train("max", verify="no")
    Traceback (most recent call last):
    TypeError: `verify` must be true or false, got 'no'.
    """
    hints = get_type_hints(of.__init__ if isinstance(of, type) else of)  # type: ignore[misc]  # its own, not a base's
    for name, hint in hints.items():
        if name in given and not _fits(given[name], hint):
            is_choice = isinstance(given[name], str) and any(get_origin(one) is Literal for one in _options(hint))
            kind = ValueError if is_choice else TypeError
            raise kind(f"`{name}` must be {_said(hint)}, got {shown(given[name])}.")


def whole(name: str, value: object, low: int = 1, high: int = MOST, why: str = "") -> int:
    """Return a whole number, or raise if it is not one or out of bounds; ``why`` ends the message of a low one.

    >>> whole("eta", 1, low=2, why="with 1 no arm is ever eliminated")
    Traceback (most recent call last):
    ValueError: `eta` must be at least 2, got 1: with 1 no arm is ever eliminated.
    """
    if not is_whole(value):
        raise TypeError(f"{_quoted(name)} must be a whole number, got {shown(value)}.")
    if value < low:
        raise ValueError(f"{_quoted(name)} must be at least {low}, got {shown(value)}{why and f': {why}'}.")
    if value > high:
        raise ValueError(f"{_quoted(name)} must be at most {high}, got {shown(value)}.")
    return int(value)


def number(
    name: str,
    value: object,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    why: str = "",
) -> float:
    """Return a finite number, or raise if it is not one or out of bounds; ``why`` ends the message.

    ``low`` and ``high`` may be taken, ``above`` and ``below`` are too small and too large themselves.

    >>> number("lr", 0.5, above=0), number("epsilon", 1, 0, 1)
    (0.5, 1)
    >>> number("momentum", 1.5, low=0, below=1)
    Traceback (most recent call last):
    ValueError: `momentum` must be in [0, 1), got 1.5.
    """
    if not is_number(value):
        raise TypeError(f"{_quoted(name)} must be a number, got {shown(value)}.")
    bottom, top = low if above is None else above, high if below is None else below
    above_bottom = bottom is None or value > bottom or value == low
    if not (math.isfinite(value) and above_bottom and (top is None or value < top or value == high)):
        if top is not None:
            rule = f"in {'[' if above is None else '('}{bottom}, {top}{']' if below is None else ')'}"
        elif not math.isfinite(value):
            rule = "finite"
        else:
            rule = f"at least {low}" if above is None else f"above {above}"
        raise ValueError(f"{_quoted(name)} must be {rule}, got {shown(value)}{why and f': {why}'}.")
    return int(value) if is_whole(value) else float(value)


def shown(value: object, longest: int = 100) -> str:
    """Return a value as text for an error message.

    >>> shown("no"), shown([0.5] * 1000, longest=12)
    ("'no'", '[0.5, 0.5...')
    """
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question after the most similar name; nothing where none is similar.

    >>> did_you_mean("momentun", ["lr", "momentum"]), did_you_mean("learning_rate", ["lr"]), did_you_mean("x", ["lr"])
    (" Did you mean 'momentum'?", " Did you mean 'lr'?", '')
    """
    found = get_close_matches(name.replace("learning_rate", "lr"), list(names), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def _quoted(name: str) -> str:
    return name if "`" in name else f"`{name}`"


def _options(hint: Any) -> Sequence[Any]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: object, hint: Any) -> bool:
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is Literal:
        return (isinstance(value, str) or is_whole(value)) and value in inner
    if kind in (int, float):
        return is_whole(value) if kind is int else is_number(value)
    if kind is Sequence:  # also an array, or a column of a table
        if isinstance(value, str | bytes | Mapping) or not (isinstance(value, Sized) and isinstance(value, Iterable)):
            return False
        return inner[0] is Any or all(_fits(one, inner[0]) for one in islice(value, 1000))
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def _said(hint: Any) -> str:
    """Return a kind in words.

    >>> _said(int | Sequence[int] | None), _said(Literal["a", "b"] | float)
    ('a whole number, a sequence of whole numbers or None', "one of 'a', 'b' or a number")
    """
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        *first, last = (_said(one) for one in inner)
        return f"{', '.join(first).replace('true or false', 'true, false')} or {last}"
    if kind is Literal:
        return f"{'one of ' if inner[1:] else ''}{', '.join(map(repr, inner))}"
    if kind is Sequence and get_origin(inner[0]) is Literal:
        return f"a sequence of {' and '.join(map(repr, get_args(inner[0])))}"
    if kind is Sequence and inner[0] in _KINDS:
        return f"a sequence of {_KINDS[inner[0]].removeprefix('a ')}s"
    name = getattr(kind, "__name__", str(kind))
    return _KINDS.get(kind) or _OTHERS.get(kind) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _about_settings(error: BaseException) -> bool:
    return isinstance(error, ValueError | TypeError | MisconfigurationException)


class WrongSettings:
    """Keep the errors of checks, and raise them together at the end of the block.

    Args:
        of_setting: Whether an error is about a setting; others are raised at once.

    Example:
        >>> with WrongSettings() as wrong:
        ...     cohort = wrong.attempt(whole, "cohort", 0)
        ...     epochs = wrong.attempt(whole, "epochs", "many")
        Traceback (most recent call last):
        ValueError: 2 settings are wrong:
        - `cohort` must be at least 1, got 0.
        - `epochs` must be a whole number, got 'many'.
    """

    def __init__(self, of_setting: Callable[[BaseException], bool] = _about_settings) -> None:
        self._of_setting = of_setting
        self.errors: list[BaseException] = []

    def attempt(self, check: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a check and return what it returns; None if it raises."""
        try:
            return check(*args, **kwargs)
        except Exception as error:
            if not self._of_setting(error):
                raise
            self.errors.append(error)
            return None

    def __enter__(self) -> WrongSettings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise what was kept, together with the error that ends the block: one as it is, several in one."""
        if error is not None:
            if not self._of_setting(error):
                return
            self.errors.append(error)
        if self.errors == [error] or not self.errors:
            return
        texts = dict.fromkeys(map(str, self.errors))
        if len(texts) == 1:
            raise self.errors[0]
        fits = all(isinstance(one, MisconfigurationException) for one in self.errors)
        raise (MisconfigurationException if fits else ValueError)(
            f"{len(texts)} settings are wrong:" + "".join("\n- " + text.replace("\n", "\n  ") for text in texts)
        ) from error
