"""A table that grows by rows and is kept by columns: small in memory, plain in a checkpoint, CSV on disk."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

Cell = float | int | str | bool | None


class Table(Sequence[dict[str, Any]]):
    """Rows of numbers, strings and blanks. A column that appears late is blank in the rows before it.

    >>> table = Table()
    >>> table.append({"round": 0, "score": 2.5})
    >>> table.append({"round": 1, "score": 2.0, "arm": 3})
    >>> table["arm"], table[-1]["score"], len(table)
    ([None, 3], 2.0, 2)
    """

    def __init__(self, columns: Mapping[str, list[Cell]] | None = None) -> None:
        self._columns: dict[str, list[Cell]] = {name: list(cells) for name, cells in (columns or {}).items()}
        self._rows = max((len(cells) for cells in self._columns.values()), default=0)

    @property
    def columns(self) -> list[str]:
        """The names, in the order of their first appearance."""
        return list(self._columns)

    def append(self, row: Mapping[str, Cell]) -> None:
        """Add one row."""
        if row.keys() != self._columns.keys():
            for name in row:
                if name not in self._columns:
                    self._columns[name] = [None] * self._rows
        for name, cells in self._columns.items():
            cells.append(row.get(name))
        self._rows += 1

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, item: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, item: str) -> list[Any]: ...
    @overload
    def __getitem__(self, item: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, item: int | str | slice) -> Any:
        """Return a row by its number, rows by a slice, a column by its name."""
        if isinstance(item, str):
            if item not in self._columns:
                raise KeyError(f"no column {item!r} in this table: it has {', '.join(self._columns) or 'none yet'}.")
            return list(self._columns[item])
        if isinstance(item, slice):
            return [self[row] for row in range(*item.indices(self._rows))]
        if not -self._rows <= item < self._rows:
            raise IndexError(f"row {item} of a table with {self._rows} rows.")
        return {name: cells[item] for name, cells in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(self._rows))

    def __eq__(self, other: object) -> bool:
        """Tables are equal where a reader of their files could not tell them apart."""
        return isinstance(other, Table) and repr(self.state_dict()) == repr(other.state_dict())

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Table({self._rows} rows: {', '.join(self._columns)})"

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table; floats in full, so that a reader computes with what the run computed with."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self._columns)
            writer.writerows(
                ["" if cell is None else cell for cell in row] for row in zip(*self._columns.values(), strict=True)
            )
        partial.replace(path)

    def state_dict(self) -> dict[str, list[Cell]]:
        """Return the columns, as a checkpoint keeps them."""
        return {name: list(cells) for name, cells in self._columns.items()}
