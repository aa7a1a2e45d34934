"""One column of a table: cells of every kind in flat arrays, which a checkpoint takes as they are.

A run writes a row for every job, and a checkpoint of every round saves all of them each time: cell by cell that would
soon take longer than the round.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

Cell = float | int | str | bool | None

_BLANK, _FLOAT, _INT, _BOOL, _OBJECT = range(5)
_KINDS = {type(None): _BLANK, float: _FLOAT, int: _INT, bool: _BOOL}
_EXACT = 1 << 53
"""The first whole number whose neighbour a float cannot tell from it."""


class Column:
    """Cells: of each its kind, and a number, which for texts and large whole numbers is a place in a list.

    Args:
        blanks: So many blanks it begins with.

    >>> column = Column(blanks=1)
    >>> column.extend([2.5, 3, True, "adam", "adam"])
    >>> column.cells(), column[-1], len(column)
    ([None, 2.5, 3, True, 'adam', 'adam'], 'adam', 6)
    """

    def __init__(self, blanks: int = 0) -> None:
        self._kinds = bytearray(blanks)
        self._numbers = array("d", bytes(8 * blanks))
        self._objects: list[Any] = []
        self._places: dict[Any, int] = {}

    def extend(self, cells: Sequence[Any]) -> None:
        """Add cells at the end."""
        types = set(map(type, cells))
        kind = _KINDS.get(types.pop(), _OBJECT) if len(types) == 1 else _OBJECT
        if kind == _BLANK:
            self._add(kind, [0.0] * len(cells))
        elif kind in (_FLOAT, _BOOL) or (kind == _INT and min(cells) > -_EXACT and max(cells) < _EXACT):
            self._add(kind, cells)
        else:
            for cell in cells:
                self._add(*self._coded(cell))

    def _add(self, kind: int, numbers: Sequence[float]) -> None:
        self._kinds += bytes((kind,)) * len(numbers)
        self._numbers.extend(numbers)

    def _coded(self, cell: Any) -> tuple[int, Sequence[float]]:
        if isinstance(cell, np.generic):  # which a safely loaded checkpoint cannot hold
            cell = cell.item()
        kind = _KINDS.get(type(cell), _OBJECT)
        if kind == _BLANK:
            return kind, (0.0,)
        if kind in (_FLOAT, _BOOL) or (kind == _INT and -_EXACT < cell < _EXACT):
            return kind, (cell,)
        key = _key(cell)
        if key not in self._places:
            self._places[key] = len(self._objects)
            self._objects.append(cell)
        return _OBJECT, (self._places[key],)

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, place: int) -> Any:
        """Return a cell by its number."""
        return self._cell(self._kinds[place], self._numbers[place])

    def cells(self) -> list[Any]:
        """Return all cells."""
        numbers = self._numbers.tolist()
        if not any(kind in self._kinds for kind in (_BLANK, _INT, _BOOL, _OBJECT)):
            return numbers
        return [self._cell(kind, number) for kind, number in zip(self._kinds, numbers, strict=True)]

    def _cell(self, kind: int, number: float) -> Any:
        if kind == _FLOAT:
            return number
        if kind == _INT:
            return int(number)
        if kind == _BOOL:
            return number == 1.0
        return None if kind == _BLANK else self._objects[int(number)]


def packed(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return columns as a checkpoint keeps them: one tensor of kinds, and one of the numbers' bits."""
    held = list(columns.values())
    shape = len(held), len(held[0]) if held else 0
    kinds = np.frombuffer(b"".join(bytes(column._kinds) for column in held), dtype=np.uint8).reshape(shape)
    bits = np.frombuffer(b"".join(column._numbers.tobytes() for column in held), dtype=np.int64).reshape(shape)
    return {
        "names": list(columns),
        "kinds": torch.from_numpy(kinds.copy()),
        "bits": torch.from_numpy(bits.copy()),
        "objects": [list(column._objects) for column in held],
    }


def unpacked(saved: Mapping[str, Any]) -> dict[str, Column]:
    """Return the columns of a checkpoint.

    >>> column = Column(blanks=1)
    >>> column.extend([2, "adam"])
    >>> unpacked(packed({"kind": column}))["kind"].cells()
    [None, 2, 'adam']
    """
    columns = {}
    parts = saved["names"], saved["kinds"].numpy(), saved["bits"].numpy(), saved["objects"]
    for name, kinds, bits, objects in zip(*parts, strict=True):
        column = columns[name] = Column()
        column._kinds = bytearray(kinds.tobytes())
        column._numbers = array("d", bits.tobytes())
        column._objects = list(objects)
        column._places = {_key(one): place for place, one in enumerate(objects)}
    return columns


def _key(cell: Any) -> tuple[type, str]:
    return type(cell), repr(cell)
