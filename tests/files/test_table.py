"""Tables keep what they are given: in memory, in a checkpoint, in a file."""

from __future__ import annotations

import csv
import io
import math
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_fedhpo.files.row_blocks import BLOCK
from lightning_fedhpo.files.table import WAITING, Column, Table

ROWS: list[dict[str, Any]] = [
    {"round": 0, "score": 0.1, "best": True, "kind": "adam", "count": 3},
    {"round": 1, "score": math.nan, "best": False, "kind": None, "count": 2**53},
    {"round": 2, "score": -0.0, "best": True, "kind": "sgd", "count": -(2**70), "late": 1},
    {"round": 3, "score": 1e-310, "best": False, "kind": "adam", "count": 2**53 - 1, "late": 0.5},
    {"late": True, "round": 4, "score": -math.inf, "kind": "1", "best": None, "count": 0},
]
NAMES = ["round", "score", "best", "kind", "count", "late"]


def filled(times: int = 1) -> Table:
    table = Table()
    for _ in range(times):
        for row in ROWS:
            table.append(row)
    return table


def complete(rows: list[dict[str, Any]]) -> str:
    """Return rows with blanks for what they lack, in full: types, nan and the sign of zero are part of it."""
    return repr([{name: row.get(name) for name in NAMES} for row in rows])


def through_a_file(state: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("times", [1, WAITING // len(ROWS), 2 * WAITING // len(ROWS) + 1])
def test_cells_come_back_as_they_were(times: int) -> None:
    table = filled(times)
    assert complete(list(table)) == complete(ROWS * times)
    assert len(table) == len(ROWS) * times
    assert repr(table["late"]) == repr([row.get("late") for row in ROWS] * times)
    assert complete([table[-2]]) == complete([ROWS[-2]])


@pytest.mark.parametrize("cells", [[None, None], [True, False, True], ["b", "a", "b"], [2.5, -0.0], [3, -4]])
def test_cells_of_one_kind_come_back_as_they_were(cells: list[Any]) -> None:
    column = Column()
    for more in (cells, ["a", 1, None], cells[::-1]):
        column.extend(more)
    assert repr(column.cells()) == repr([*cells, "a", 1, None, *cells[::-1]])
    assert len(column.objects) == len({repr(cell) for cell in [*cells, "a"] if isinstance(cell, (bool, str))})


SMALL = [Table(), Table({"round": []}), Table({"round": [3]})]


def saved_meanwhile() -> Table:
    """A table that is saved again and again, and to which a column comes after its second block."""
    table = Table()
    for number in range(3 * BLOCK):
        table.append({"round": number, "kind": f"{number % 3}"} | ({"late": -number} if number > 2 * BLOCK else {}))
        if number % 100 == 0:
            table.state_dict()
    return table


@pytest.mark.parametrize(
    "table",
    [filled(), filled(BLOCK), saved_meanwhile(), *SMALL],
    ids=["all kinds", "long", "saved", "none", "no row", "one"],
)
def test_a_checkpoint_holds_every_cell_and_does_not_move_with_the_table(table: Table) -> None:
    state, before = table.state_dict(), complete(list(table))
    back = Table.from_state(through_a_file(state))
    assert back == table
    for one in (table, back):
        for row in ROWS:
            one.append(row)
    assert back == table
    assert complete(list(Table.from_state(state))) == before


def test_a_table_is_small_in_a_checkpoint_and_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are not pickled one by one, and a checkpoint of every round compresses few rows anew."""
    table, packed, compress = Table(), [0], zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data, level: packed.append(len(data)) or compress(data, level))
    draw = random.Random(0)
    for number in range(20 * BLOCK):
        table.append({"round": number // 10, "client": draw.randrange(100), "score": draw.random(), "kind": "adam"})
        if number % 10 == 9:
            state = table.state_dict()
    assert Table.from_state(through_a_file(state)) == table
    raw = len(table) * 4 * 9
    assert state["blocks"].nbytes < raw / 3, "most of it is a drawn number's bits"
    assert len(repr([part for name, part in state.items() if name != "blocks"])) < 20 * 20, "two numbers a block"
    assert sum(packed) < raw + 2 * BLOCK * BLOCK * 9 * 4, "every block once, and what is left at each save"


def test_tables_differ_by_types_and_names() -> None:
    assert Table({"a": [1]}) != Table({"a": [1.0]})
    assert Table({"a": [1]}) != Table({"a": [True]})
    assert Table({"a": [1], "b": [2]}) != Table({"b": [2], "a": [1]})
    assert Table({"a": [math.nan]}) == Table({"a": [math.nan]})


def test_a_file_has_what_the_table_has(tmp_path: Path) -> None:
    filled().to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows if row["score"] != "nan"] == [0.1, -0.0, 1e-310, -math.inf]
    assert [row["count"] for row in rows] == [str(row["count"]) for row in ROWS]
    assert [row["late"] for row in rows] == ["", "", "1", "0.5", "True"]


def test_no_text_of_a_file_begins_like_a_formula_and_all_come_back(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-a", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-1", "'tis", "a=b", "adam"]
    table = Table({text: [text, -1.5, None] for text in texts})
    table.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        names, cells, numbers, _ = csv.reader(file)
    assert not {text[0] for text in (*names, *cells)} & set("=+-@\t\r") and names[-3:] == cells[-3:] == texts[-3:]
    assert set(numbers) == {"-1.5"}
    assert Table.from_csv(tmp_path / "table.csv") == table


def test_an_unknown_column_names_those_there_are() -> None:
    with pytest.raises(KeyError, match="no column 'arm' in this table: it has round, score, best, kind, count, late"):
        filled()["arm"]


def test_numpy_s_numbers_become_plain_ones() -> None:
    column = Column()
    column.extend([np.float64(0.5), np.int64(3), np.bool_(True), np.str_("adam")])
    assert [(type(cell), cell) for cell in column.cells()] == [(float, 0.5), (int, 3), (bool, True), (str, "adam")]
