"""A part is one data set that a partition shares out, and what it can be asked: its labels, a value per example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from lightning_fedhpo.arguments import shown
from lightning_fedhpo.data.columns import LABELS, as_array, column_names, stored
from lightning_fedhpo.data.grouping import Ints

By = str | Callable[[Any], Any] | Sequence[Any] | Tensor | NDArray[Any] | Mapping[str, Any]
"""A value per example: a column's name, a function of the example, the values, or one of these for each split."""
NO_LABELS = "pass `targets=`, or choose a partition that needs no labels (Iid, Quantity, Natural)"


@dataclass(frozen=True, eq=False)
class Part:
    """One data set to be shared out.

    Args:
        name: The split it belongs to.
        dataset: The examples.
        targets: Where their labels are, if not in one of the usual places.
        alone: Whether it is the only part, so that plain values can be meant for it.
        rows: Of a part that is cut from one data set, which of its examples it has: plain values are for all of it.
    """

    name: str
    dataset: Dataset[Any]
    targets: By | None = None
    alone: bool = True
    rows: Ints | None = None

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # map-style, checked when it came in

    @cached_property
    def labels(self) -> Ints:
        """One integer label per example."""
        if self.targets is not None:
            labels = self.values(self.targets, "targets")
        else:
            found = stored(self.dataset, [*LABELS, -1])
            labels = self._read(_label_of, "targets") if found is None else found
        if labels.ndim != 1 or labels.dtype.kind not in "iub" or len(labels) != len(self):
            raise ValueError(
                f"labels must be one integer per example, the {self.name} set of {len(self)} has {labels.dtype} of "
                f"shape {labels.shape}: {NO_LABELS}."
            )
        return labels

    @property
    def labels_at_hand(self) -> bool:
        """Whether the labels are there without a look at every example, which can take minutes."""
        by = self.targets.get(self.name) if isinstance(self.targets, Mapping) else self.targets
        if "labels" in vars(self) or callable(by):
            return "labels" in vars(self)
        return not isinstance(by, str | None) or stored(self.dataset, [*LABELS, -1] if by is None else [by]) is not None

    def values(self, by: By, argument: str) -> NDArray[Any]:
        """Return one value per example; `argument` is what the user calls it."""
        if isinstance(by, Mapping):
            if self.name not in by:
                raise ValueError(f"`{argument}` must cover every split, got {sorted(by)} without {self.name!r}.")
            return replace(self, alone=True, rows=None).values(by[self.name], argument)
        if isinstance(by, str):
            values = self._column(by, argument)
        elif callable(by):
            values = self._read(by, argument)
        elif self.rows is not None:
            values = as_array(by)
            if len(values) <= self.rows[-1]:
                raise ValueError(
                    f"`{argument}` must be one value per example of the whole data set, got {len(values)}."
                )
            values = values[self.rows]
        elif self.alone:
            values = as_array(by)
        else:
            raise TypeError(
                f"`{argument}` must say which split its values are for, got {type(by).__name__}: give them as "
                '{"train": …, "val": …, "test": …}, a column\'s name, or a function of the example.'
            )
        if values.ndim != 1 or len(values) != len(self):
            rule = f"`{argument}` must be one value per example, {len(self)} in the {self.name} set"
            raise ValueError(f"{rule}, got {values.dtype} of shape {values.shape}.")
        return values

    def _column(self, name: str, argument: str) -> NDArray[Any]:
        values = stored(self.dataset, [name])
        if values is not None:
            return values
        first = self.dataset[0] if len(self) else None
        if isinstance(first, Mapping) and name in first:
            return self._read(lambda example: example[name], argument)
        known = list(first) if isinstance(first, Mapping) else column_names(self.dataset)
        there = f"it has {known}" if known else "its examples have no names: pass the values or a function"
        raise ValueError(f"`{argument}` must name a column of the {self.name} set, got {name!r}; {there}.")

    def _read(self, function: Callable[[Any], Any], argument: str) -> NDArray[Any]:
        values = []
        for place in range(len(self)):
            example = self.dataset[place]
            try:
                values.append(function(example))
            except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
                what = f"{type(error).__name__}: {error}"
                rule = f"`{argument}` must give a value for each example, for number {place} of the {self.name} set it"
                raise ValueError(f"{rule} ends in {what} (the example is {shown(example)}).") from error
        return as_array(values)


def _label_of(example: Any) -> Any:
    if isinstance(example, Mapping):
        name = next((name for name in LABELS if name in example), None)
        if name is None:
            raise ValueError(f"no label among an example's entries {list(example)}: name it with `targets=`.")
        return example[name]
    if isinstance(example, (tuple, list)) and len(example) > 1:
        return example[-1]
    raise ValueError(f"an example without a label, a {type(example).__name__}: {NO_LABELS}.")
