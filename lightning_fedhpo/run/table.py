"""A table that grows by rows and is kept by columns: small in memory, plain in a checkpoint, CSV on disk."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from lightning_fedhpo.run.folders import replacing
from lightning_fedhpo.run.table_column import Cell, Column, packed, unpacked

__all__ = ["Cell", "Table"]

WAITING = 1024
"""So many rows are kept as they came before they go into the columns together, which is faster by far."""


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
        self._settled = 0

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
                self._settle()
                self._held |= {name: Column(blanks=self._settled) for name in new}
                self._names = tuple(self._held)
            self._waiting.append(tuple([row.get(name) for name in self._names]))
        if len(self._waiting) >= WAITING:
            self._settle()

    def _settle(self) -> dict[str, Column]:
        """Return the columns, with every row in them."""
        if self._waiting:
            for column, cells in zip(self._held.values(), zip(*self._waiting, strict=True), strict=True):
                column.extend(cells)
            self._settled += len(self._waiting)
            self._waiting = []
        return self._held

    def __len__(self) -> int:
        return self._settled + len(self._waiting)

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
            return self._settle()[item].cells()
        if isinstance(item, slice):
            return [self[row] for row in range(*item.indices(len(self)))]
        if not -len(self) <= item < len(self):
            raise IndexError(f"row {item} of a table with {len(self)} rows.")
        return {name: column[item] for name, column in self._settle().items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self._names, cells, strict=True)) for cells in self._cells())

    def _cells(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(column.cells() for column in self._settle().values()), strict=True)

    def __eq__(self, other: object) -> bool:
        """Tables are equal where a reader of their files could not tell them apart."""
        return isinstance(other, Table) and repr(self.to_dict()) == repr(other.to_dict())

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self._names)})"

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, as ``pandas.DataFrame`` takes them."""
        return {name: column.cells() for name, column in self._settle().items()}

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table, floats in full precision."""
        with replacing(path) as file:
            writer = csv.writer(file)
            writer.writerow(self._names)
            writer.writerows(["" if cell is None else cell for cell in row] for row in self._cells())

    def state_dict(self) -> dict[str, Any]:
        """Return the table as a checkpoint keeps it."""
        return packed(self._settle())

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> Table:
        """Return the table of a checkpoint."""
        table = cls()
        table._held = unpacked(saved)
        table._names = tuple(table._held)
        table._settled = saved["kinds"].shape[1]
        return table
