"""What processes of one machine tell each other through memory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_fedhpo.processes import board
from lightning_fedhpo.processes.board import ApartError, Board, LostProcessError, MissingProcessError, Place

pytestmark = pytest.mark.skipif(not board.able(), reason="no memory that processes can share")
CAPACITY = 64


def boards(count: int) -> list[Board]:
    """Return the boards of so many processes; threads stand in for them."""
    places = [Place(CAPACITY) for _ in range(count)]
    paths = [str(place.path) for place in places]
    found = [Board(place, paths, rank, CAPACITY) for rank, place in enumerate(places)]
    for place in places:
        place.remove()
    assert not any(os.path.exists(path) for path in paths)
    return found


def at_once(found: list[Board], act: Callable[[int, Board], Any]) -> list[Any]:
    """Let every process act."""
    with ThreadPoolExecutor(len(found)) as pool:
        return list(pool.map(act, range(len(found)), found))


def test_everybody_has_what_everybody_says() -> None:
    def act(rank: int, one: Board) -> list[list[list[list[float]]]]:
        heard = []
        for step in range(50):
            parts = [torch.tensor([float(rank), float(step)]), torch.full((3,), float(rank * step))]
            heard.append([[view.tolist() for view in views] for views in one.exchange(parts)])
        return heard

    wanted = [[[[rank, step], [rank * step] * 3] for rank in range(3)] for step in range(50)]
    assert at_once(boards(3), act) == [wanted] * 3


def test_room_grows_while_others_still_read() -> None:
    def act(rank: int, one: Board) -> list[Tensor]:
        kept = []
        for size in (10, CAPACITY + 1, 5, 10_000, 20_001, 3):
            assert one.takes(size)
            everyone = one.exchange([torch.full((size,), rank + size % 7, dtype=torch.uint8)])
            kept += [view.clone() for (view,) in everyone]
        return kept

    first, second = at_once(boards(2), act)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert [(len(one), int(one[0])) for one in first[6:8]] == [(10_000, 10_000 % 7), (10_000, 1 + 10_000 % 7)]


def test_where_one_has_no_room_nobody_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = boards(2)
    reserve, short = os.posix_fallocate, found[1]._files[1]

    def refusing(file: int, offset: int, length: int) -> None:
        if file == short:
            raise OSError(28, "No space left on device")
        reserve(file, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", refusing)
    assert at_once(found, lambda rank, one: one.takes(1_000)) == [False, False]
    monkeypatch.undo()
    assert at_once(found, lambda rank, one: one.takes(1_000)) == [False, False]  # both know, without asking again
    assert at_once(found, lambda rank, one: one.takes(CAPACITY)) == [True, True]
    said = at_once(found, lambda rank, one: [int(v) for (v,) in one.exchange([torch.tensor([rank + 1]).byte()])])
    assert said == [[1, 2], [1, 2]]


def test_where_one_cannot_map_more_nobody_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = boards(2)
    mapped, short = board.mmap.mmap, found[1]._files[0]

    def refusing(file: int, length: int) -> object:
        if file == short:
            raise OSError(12, "Cannot allocate memory")
        return mapped(file, length)

    monkeypatch.setattr(board.mmap, "mmap", refusing)
    assert at_once(found, lambda rank, one: one.takes(1_000)) == [False, False]
    assert at_once(found, lambda rank, one: one.takes(CAPACITY)) == [True, True]


def test_a_full_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(file: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(board, "FOLDER", tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", refusing)
    with pytest.raises(OSError, match="No space"):
        Place(CAPACITY)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_lets_go_is_missed_at_once() -> None:
    first, second = boards(2)
    del second._maps, second._counters  # as a process that ends
    second.close()
    with pytest.raises(LostProcessError):
        first.exchange([torch.zeros(3)])


def test_a_process_that_is_gone_is_missed() -> None:
    first, second = boards(2)
    fcntl.flock(second._files[1], fcntl.LOCK_UN)  # what the system does when a process ends, however it does
    with pytest.raises(LostProcessError, match="process 1 of the run is gone"):
        first.exchange([torch.zeros(3)])


def test_a_process_that_is_gone_is_missed_also_by_who_waits_for_another() -> None:
    first, second, third = boards(3)
    fcntl.flock(third._files[2], fcntl.LOCK_UN)
    third._counters[2][0] = first._step + 1  # it was killed when it had said what it had to say
    with pytest.raises(LostProcessError, match="process 2 of the run is gone"):
        first.exchange([torch.zeros(3)])
    second.close()


def test_who_does_not_answer_in_time_is_missed() -> None:
    first, second, third = boards(3)
    second._counters[1][0] = 1  # it is here, and the first one is not
    with pytest.raises(MissingProcessError, match="process 0 of the run does not answer"):
        third.patience = 0.3
        third.exchange([torch.zeros(3)])
    second._step = 1
    assert not third.takes_over(from_missing=True) and second.takes_over(from_missing=True)
    first.close()


def test_what_has_failed_is_forgotten_with_the_next_exchange() -> None:
    found = boards(2)
    found[0].fail()
    assert found[1].has_failed(0)
    at_once(found, lambda rank, one: one.exchange([torch.zeros(1)]))
    assert not found[1].has_failed(0)


def test_the_next_that_is_left_takes_over_from_those_that_are_gone() -> None:
    first, second, third = boards(3)
    assert not second.takes_over() and not third.takes_over()
    first.close()
    assert not third.takes_over(), "the second is still there"
    assert second.takes_over() and second.takes_over()
    second.close()
    assert not third.takes_over(), "the second has done so before it went"


def test_one_whose_predecessors_are_all_gone_takes_over() -> None:
    first, second, third = boards(3)
    first.close()
    second.close()
    assert third.takes_over()


def test_one_that_has_failed_speaks_for_itself_before_it_goes() -> None:
    first, second = boards(2)
    first.fail()
    first.close()
    assert not second.takes_over()


def test_processes_that_exchange_different_things_are_told() -> None:
    places = ["round 3", "the end of the run", "round 3"]

    def act(rank: int, one: Board) -> str:
        one.exchange([torch.tensor([rank])], "round 2")
        with pytest.raises(ApartError) as raised:
            one.exchange([torch.tensor([rank])], places[rank])
        return str(raised.value)

    for place, said in zip(places, at_once(boards(3), act), strict=True):
        assert f"this one is at {place}, another one is not" in said


def test_processes_that_say_tensors_of_different_kinds_are_told() -> None:
    def act(rank: int, one: Board) -> None:
        with pytest.raises(ApartError):
            one.exchange([torch.zeros(2 + rank)], "round 3")

    at_once(boards(2), act)
