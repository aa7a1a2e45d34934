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
    return hasattr(data, "iloc") and hasattr(data, "columns") or _has_to_pandas(data)


def rows_of(
    data: Frame, targets: object, features: Sequence[str] | None, others: Sequence[str], first: FrameRows | None
) -> FrameRows:
    """Return the rows of a table.

    Args:
        data: The table.
        targets: The label's column; None finds one of the usual names.
        features: The columns of numbers that make up an input; by default all but the label, the clients and others.
        others: Further columns that say who owns a row, or which part it belongs to.
        first: The rows of the first table of several, whose label and features the others have, in any order.
    """
    frame: Frame = data.to_pandas() if _has_to_pandas(data) else data
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        double = list(dict.fromkeys(name for name in names if names.count(name) > 1))
        raise ValueError(
            f"a table's columns must have names that differ, several are called {shown(double)}: rename them."
        )
    if names != list(frame.columns):  # numbers, where nobody has named them
        frame = frame.set_axis(names, axis=1)
    if first is not None:
        targets, features, others = first.label, first.features, ()
        lacking = [name for name in [*features, first.label] if name not in names]
        if lacking:
            raise ValueError(
                f"all tables must have the columns of the first one, this one lacks {_listed(lacking)}: add them."
            )
    label = _label(names, targets)
    features = None if features is None else list(features)
    for name in [*(features or ()), *others]:
        if name not in names:
            rule = f"`features`, `partition` and `split` must name columns of the table, got {name!r}"
            raise ValueError(f"{rule}; it has {_listed(names)}.{did_you_mean(name, [*names, 'temporal'])}")
    beside = {label, CLIENT, *others}
    used = [name for name in names if name not in beside] if features is None else features
    if not used or label in used or len(set(used)) < len(used):
        rule = f"`features` must be columns that differ, and not the label {label!r}, got {shown(used)}"
        raise ValueError(f"{rule}: the table has {_listed(names)}.")
    way_out = "encode them, as by pandas.get_dummies, or name the others in `features`"
    if not others and CLIENT not in names:
        way_out = f"{way_out}; if one of them says who owns a row, Natural names it"
    _check_numbers(frame, used, "features", way_out)
    _check_numbers(frame, [label], "the label", f"encode it, as by table[{label!r}].astype('category').cat.codes")
    x = torch.from_numpy(np.require(frame[used].to_numpy(dtype=np.float32), requirements=["C", "W"]))
    whole = frame[label].dtype.kind in "iub"
    y = torch.from_numpy(np.array(frame[label].to_numpy(dtype=np.int64 if whole else np.float32)))
    return FrameRows(x, y, frame, used, label)


def _has_to_pandas(data: object) -> bool:
    return type(data).__module__.partition(".")[0] in ("polars", "pyarrow") and hasattr(data, "to_pandas")


def _label(names: list[str], targets: object) -> str:
    if targets is None:
        found = next((name for name in LABELS if name in names), None)
        if found is None:
            rule = f"a table's label is in the column that `targets` names, or in one of {', '.join(LABELS)}"
            raise ValueError(f"{rule}; this one has {_listed(names)}.")
        return found
    if not isinstance(targets, str):
        raise TypeError(f"`targets` must be a column's name for a table, got {shown(targets)}.")
    if targets not in names:
        raise ValueError(
            f"`targets` must name a column of the table, got {targets!r}; it has {_listed(names)}."
            f"{did_you_mean(targets, names)}"
        )
    return targets


def _check_numbers(frame: Frame, names: list[str], what: str, way_out: str) -> None:
    """Refuse columns that are not numbers, or that lack some: all of them at once, since a table has many."""
    if not len(frame):
        return  # of a file with a header only, pandas cannot tell: who needs examples says that there are none
    kinds = {name: frame[name].dtype for name in names}
    texts = [name for name, dtype in kinds.items() if getattr(dtype, "kind", "O") not in "iufb"]
    if texts:
        types = ", ".join(dict.fromkeys(str(kinds[name]) for name in texts))
        raise TypeError(f"{what} must be numbers, {_columns(texts)} {types}: {way_out}.")
    missing = [name for name in names if frame[name].isna().any()]
    if missing:
        counts = ", ".join(str(int(frame[name].isna().sum())) for name in missing)
        raise ValueError(f"{_columns(missing)} {counts} missing values of {len(frame)}: fill them, or drop these rows.")
    floats = [name for name in names if kinds[name].kind == "f"]
    infinite = [name for name in floats if not np.isfinite(frame[name].to_numpy(dtype=np.float64)).all()]
    if infinite:
        raise ValueError(f"{_columns(infinite)} values that are not finite: drop these rows.")


def _columns(names: list[str]) -> str:
    return f"column {names[0]!r} has" if len(names) == 1 else f"columns {_listed(names)} have"


def _listed(names: list[str]) -> str:
    return shown(names, longest=1200)  # tables have many columns, and the one that is sought may be the last
