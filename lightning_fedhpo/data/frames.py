"""Tables of pandas as examples: rows of numbers, and a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from lightning_fedhpo.arguments import did_you_mean, shown
from lightning_fedhpo.data.columns import CLIENT, LABELS

Frame = Any
"""A pandas DataFrame: pandas is no dependency."""


class FrameRows(TensorDataset):
    """A table's rows as pairs ``(x, y)``; the columns that are not in them can still be looked up by name."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, frame: Frame, features: list[str], label: str) -> None:
        super().__init__(x, y)
        self.frame, self.features, self.label = frame, features, label

    def stored_column(self, name: str) -> NDArray[Any] | None:
        """Return a column's values, missing ones as None; None where there is no such column."""
        if name not in self.frame.columns:
            return None
        values = self.frame[name]
        array: NDArray[Any] = values.to_numpy()
        return array if array.dtype != object else values.astype(object).where(values.notna(), None).to_numpy()


def is_frame(data: object) -> TypeGuard[Frame]:
    """Say whether this is a DataFrame, of pandas, or of polars and pyarrow, which become one."""
    return hasattr(data, "iloc") and hasattr(data, "columns") or _converts(data)


def rows_of(data: Frame, targets: object, features: Sequence[str] | None, others: Sequence[str]) -> FrameRows:
    """Return the rows of a table.

    Args:
        data: The table.
        targets: The label's column; None finds one of the usual names.
        features: The columns of numbers that make up an input; by default all but the label, the clients and others.
        others: Further columns that say who owns a row, or which part it belongs to.
    """
    frame: Frame = data.to_pandas() if _converts(data) else data
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of a table must have names that differ, got {shown(names)}.")
    if names != list(frame.columns):  # numbers, where nobody has named them
        frame = frame.set_axis(names, axis=1)
    label = _label(names, targets)
    features = None if features is None else list(features)
    for name in [*(features or ()), *others]:
        if name not in names:
            rule = f"`features`, `partition` and `split` must name columns of the table, got {name!r}"
            raise ValueError(f"{rule}; it has {shown(names)}.{did_you_mean(name, [*names, 'temporal'])}")
    beside = {label, CLIENT, *others}
    used = [name for name in names if name not in beside] if features is None else features
    if not used or label in used or len(set(used)) < len(used):
        rule = f"`features` must be columns that differ, and not the label {label!r}, got {shown(used)}"
        raise ValueError(f"{rule}: the table has {shown(names)}.")
    _check_numbers(frame, used, "features", "name those that do in `features`, or encode it, as by pandas.get_dummies")
    _check_numbers(frame, [label], "the label", f"encode it, as by table[{label!r}].astype('category').cat.codes")
    x = torch.from_numpy(np.require(frame[used].to_numpy(dtype=np.float32), requirements=["C", "W"]))
    whole = frame[label].dtype.kind in "iub"
    y = torch.from_numpy(np.array(frame[label].to_numpy(dtype=np.int64 if whole else np.float32)))
    return FrameRows(x, y, frame, used, label)


def _converts(data: object) -> bool:
    return type(data).__module__.partition(".")[0] in ("polars", "pyarrow") and hasattr(data, "to_pandas")


def _label(names: list[str], targets: object) -> str:
    if targets is None:
        found = next((name for name in LABELS if name in names), None)
        if found is None:
            rule = f"a table's label is in the column that `targets` names, or in one of {', '.join(LABELS)}"
            raise ValueError(f"{rule}; this one has {shown(names)}.")
        return found
    if not isinstance(targets, str):
        raise TypeError(f"`targets` must be a column's name for a table, got {shown(targets)}.")
    if targets not in names:
        raise ValueError(
            f"`targets` must name a column of the table, got {targets!r}; it has {shown(names)}."
            f"{did_you_mean(targets, names)}"
        )
    return targets


def _check_numbers(frame: Frame, names: list[str], what: str, way_out: str) -> None:
    for name in names:
        column = frame[name]
        if getattr(column.dtype, "kind", "O") not in "iufb":
            raise TypeError(f"{what} must be numbers, column {name!r} has {column.dtype}: {way_out}.")
        missing = int(column.isna().sum())
        if missing:
            raise ValueError(f"column {name!r} has {missing} missing values of {len(column)}: fill them, or drop them.")
        if column.dtype.kind == "f" and not np.isfinite(column.to_numpy(dtype=np.float64)).all():
            raise ValueError(f"column {name!r} has values that are not finite: drop these rows.")
