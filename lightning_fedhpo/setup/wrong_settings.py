"""Several wrong settings told at once: a user who mends one should not meet the next."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from lightning.pytorch.utilities.exceptions import MisconfigurationException

P = ParamSpec("P")
R = TypeVar("R")


def _about_settings(error: BaseException) -> bool:
    return isinstance(error, ValueError | TypeError | MisconfigurationException)


class WrongSettings:
    """Keep the errors of checks, and raise them together at the end of the block.

    Args:
        told: Whether an error is about a setting; others are raised at once.

    Example:
        >>> from lightning_fedhpo.arguments import whole
        >>> with WrongSettings() as wrong:
        ...     cohort = wrong.attempt(whole, "cohort", 0)
        ...     epochs = wrong.attempt(whole, "epochs", "many")
        Traceback (most recent call last):
        ValueError: 2 settings are wrong:
        - `cohort` must be at least 1, got 0.
        - `epochs` must be a whole number, got 'many'.
    """

    def __init__(self, told: Callable[[BaseException], bool] = _about_settings) -> None:
        self._told = told
        self.errors: list[BaseException] = []

    def attempt(self, check: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a check and return what it returns; None if it raises."""
        try:
            return check(*args, **kwargs)
        except Exception as error:
            if not self._told(error):
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
            if not self._told(error):
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
