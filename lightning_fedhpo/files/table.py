"""A table that grows by rows and is kept by columns: small in memory, plain in a checkpoint, CSV on disk.

A run writes a row for every job, and a checkpoint of every round saves all of them: flat arrays keep that fast, and
compressed blocks of rows keep it small.
"""

from __future__ import annotations

import csv
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, TextIO, overload

import numpy as np

from lightning_fedhpo.files.folders import replacing
from lightning_fedhpo.files.reading import reading
from lightning_fedhpo.files.row_blocks import RowBlocks

Cell = float | int | str | bool | None

WAITING = 1024
"""So many rows go into the columns together, which is faster by far than one by one."""

_BLANK, _FLOAT, _INT, _OBJECT = range(4)
_KINDS = {type(None): _BLANK, float: _FLOAT, int: _INT}
_WORDS: dict[str, Cell] = {"": None, "True": True, "False": False}
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""How a text begins that a spreadsheet may take for a formula, or that :func:`written` has changed."""
_EXACT = 1 << 53
"""The first whole number whose neighbour a float cannot tell from it."""


class Column:
    """Cells in flat arrays: the kind of each, and a number, which for other cells is a place in a list of objects.

    >>> column = Column(blanks=1)
    >>> column.extend([2.5, 3, True, "adam", "adam"])
    >>> column.cells(), column[-1]
    ([None, 2.5, 3, True, 'adam', 'adam'], 'adam')
    """

    def __init__(self, blanks: int = 0) -> None:
        self.kinds = bytearray(blanks)
        self.numbers = array("d", bytes(8 * blanks))
        self.objects: list[Any] = []
        self._places: dict[tuple[type, str], int] = {}

    @classmethod
    def from_bytes(cls, kinds: bytes, numbers: bytes, objects: Sequence[Any]) -> Column:
        """Return the column of a checkpoint."""
        column = cls()
        column.kinds, column.numbers, column.objects = bytearray(kinds), array("d", numbers), list(objects)
        column._places = {(type(one), repr(one)): place for place, one in enumerate(objects)}
        return column

    def extend(self, cells: Sequence[Any]) -> None:
        """Add cells at the end."""
        types = set(map(type, cells))
        only = types.pop() if len(types) == 1 else object
        kind = _KINDS.get(only, _OBJECT)
        if kind in (_BLANK, _FLOAT) or (kind == _INT and min(cells) > -_EXACT and max(cells) < _EXACT):
            self.kinds += bytes((kind,)) * len(cells)
            self.numbers.extend(cells if kind else bytes(len(cells)))
            return
        if only in (bool, str):  # few different ones, as a rule
            places = {cell: self._coded(cell)[1] for cell in dict.fromkeys(cells)}
            self.kinds += bytes((kind,)) * len(cells)
            self.numbers.extend([places[cell] for cell in cells])
            return
        for cell in cells:
            kind, number = self._coded(cell.item() if isinstance(cell, np.generic) else cell)
            self.kinds.append(kind)
            self.numbers.append(number)

    def _coded(self, cell: Any) -> tuple[int, float]:
        kind = _KINDS.get(type(cell), _OBJECT)
        if kind == _BLANK:
            return kind, 0.0
        if kind == _FLOAT or (kind == _INT and -_EXACT < cell < _EXACT):
            return kind, cell
        place = self._places.setdefault((type(cell), repr(cell)), len(self.objects))
        if place == len(self.objects):
            self.objects.append(cell)
        return _OBJECT, place

    def __getitem__(self, place: int) -> Any:
        """Return a cell by its number."""
        return self._cell(self.kinds[place], self.numbers[place])

    def cells(self) -> list[Any]:
        """Return all cells."""
        return [self._cell(kind, number) for kind, number in zip(self.kinds, self.numbers, strict=True)]

    def written(self) -> Column:
        """Return the column as a file has it: its texts are no formulas."""
        column = copy(self)
        column.objects = [written(one) for one in self.objects]
        return column

    def _cell(self, kind: int, number: float) -> Any:
        if kind == _FLOAT:
            return number
        if kind == _INT:
            return int(number)
        return None if kind == _BLANK else self.objects[int(number)]


class Table(Sequence[dict[str, Any]]):
    """Rows of numbers, strings and blanks. A column that appears late is blank in the rows before it.

    >>> table = Table()
    >>> table.append({"round": 0, "score": 2.5})
    >>> table.append({"round": 1, "score": 2.0, "arm": 3})
    >>> table["arm"], table[-1]["score"], len(table)
    ([None, 3], 2.0, 2)
    """

    def __init__(self, columns: Mapping[str, Sequence[Cell]] | None = None) -> None:
        self._held: dict[str, Column] = {name: Column() for name in columns or {}}
        self._names = tuple(self._held)
        self._waiting = list(zip(*columns.values(), strict=True)) if columns else []
        self._flushed = 0
        self._blocks = RowBlocks()

    @property
    def columns(self) -> list[str]:
        """The names, in the order of their first appearance."""
        return list(self._names)

    def append(self, row: Mapping[str, Cell]) -> None:
        """Add one row."""
        if tuple(row) == self._names:
            self._waiting.append(tuple(row.values()))
        else:
            new = [name for name in row if name not in self._held]
            if new:
                self._flush_rows()
                self._held |= {name: Column(blanks=self._flushed) for name in new}
                self._names = tuple(self._held)
            self._waiting.append(tuple([row.get(name) for name in self._names]))
        if len(self._waiting) >= WAITING:
            self._flush_rows()

    def _flush_rows(self) -> dict[str, Column]:
        """Return the columns, with every row in them."""
        if self._waiting:
            for column, cells in zip(self._held.values(), zip(*self._waiting, strict=True), strict=True):
                column.extend(cells)
            self._flushed += len(self._waiting)
            self._waiting = []
        return self._held

    def __len__(self) -> int:
        return self._flushed + len(self._waiting)

    @overload
    def __getitem__(self, item: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, item: str) -> list[Any]: ...
    @overload
    def __getitem__(self, item: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, item: int | str | slice) -> Any:
        """Return a row by its number, rows by a slice, a column by its name."""
        if isinstance(item, str):
            if item not in self._held:
                raise KeyError(f"no column {item!r} in this table: it has {', '.join(self._names) or 'none yet'}.")
            return self._flush_rows()[item].cells()
        if isinstance(item, slice):
            return [self[row] for row in range(*item.indices(len(self)))]
        if not -len(self) <= item < len(self):
            raise IndexError(f"row {item} of a table with {len(self)} rows.")
        waiting = item % len(self) - self._flushed
        if waiting >= 0:
            return dict(zip(self._names, self._waiting[waiting], strict=True))
        return {name: column[item] for name, column in self._held.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rows = zip(*self.to_dict().values(), strict=True)
        return (dict(zip(self._names, cells, strict=True)) for cells in rows)

    def __eq__(self, other: object) -> bool:
        """Tables are equal if a reader of their files could not tell them apart."""
        return isinstance(other, Table) and repr(self.to_dict()) == repr(other.to_dict())

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self._names)})"

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, as ``pandas.DataFrame`` takes them."""
        return {name: column.cells() for name, column in self._flush_rows().items()}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table, floats in full precision."""
        with replacing(path) as file:
            self.write_csv(file)

    def write_csv(self, file: TextIO) -> None:
        """Write the table into an open file."""
        writer = csv.writer(file)
        writer.writerow(map(written, self._names))
        columns = [column.written().cells() for column in self._flush_rows().values()]
        writer.writerows(["" if cell is None else cell for cell in row] for row in zip(*columns, strict=True))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Table:
        """Read a table that :meth:`to_csv` has written; a text that reads like a number becomes one."""
        table = cls()
        with reading(Path(path)), Path(path).open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
            names = [_read(name) for name in head]
            for name, cells in zip(names, zip(*rows, strict=True) if rows else ((),) * len(names), strict=True):
                table._held[name] = Column()
                table._held[name].extend(_parsed(cells))
        table._names, table._flushed = tuple(names), len(rows)
        return table

    def check(self, path: Path, *names: str) -> None:
        """Refuse a table, read from a file, without rows, or whose columns of these names are not all of numbers."""
        if not len(self):
            raise ValueError(f"{path} has no rows: it is cut off, or not a run's {path.name}.")
        for name in names:
            if name not in self._held:
                raise ValueError(f"{path} has no column {name!r}: it is not a run's {path.name}.")
            if any(isinstance(cell, str) for cell in self._held[name].objects):
                raise ValueError(f"{path} has texts in its column {name!r}: it is not a run's {path.name}, or damaged.")

    def state_dict(self) -> dict[str, Any]:
        """Return the table as a checkpoint keeps it."""
        held = list(self._flush_rows().values())
        objects = [list(one.objects) for one in held]
        return {"names": list(self._names), "objects": objects, **self._blocks.state_dict(held, len(self))}

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> Table:
        """Return the table of a checkpoint."""
        table, names = cls(), saved["names"]
        columns = table._blocks.load_state_dict(saved, len(names))
        for name, (kinds, numbers), objects in zip(names, columns, saved["objects"], strict=True):
            table._held[name] = Column.from_bytes(kinds, numbers, objects)
        table._names, table._flushed = tuple(names), saved["rows"]
        return table


def written(cell: Cell) -> Cell:
    """Return a cell as a file has it: an apostrophe before a text that a spreadsheet would take for a formula.

    >>> written("=1+1"), written("adam"), written(-1.5), _read(written("=1+1"))
    ("'=1+1", 'adam', -1.5, '=1+1')
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def _read(text: str) -> str:
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def _parsed(texts: Sequence[str]) -> Sequence[Cell]:
    for kind in (int, float):  # most columns are of one kind, which is fast
        with suppress(ValueError):
            return [kind(text) for text in texts]
    return [_cell(text) for text in texts]


def _cell(text: str) -> Cell:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return _read(text)
