"""Who is waited for in vain: a process that trains goes on until it looks, one that waits is ended."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_fedhpo.processes import failures, watchdog


def test_a_process_that_trains_is_left_alone_and_one_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(watchdog, "LOOK", 0.01)
    monkeypatch.setattr(watchdog.Watch, "_give_up", lambda self: ended.append("ended"))
    monkeypatch.setattr(failures, "_alone", [True])
    killed: Any = SimpleNamespace(poll=lambda: -9)
    watch = watchdog.Watch([killed], grace=0.1)
    watch.start()
    time.sleep(0.5)
    assert watch.lost and not ended, "its clients train"
    failures._alone.clear()
    watch.join(5)
    assert ended == ["ended"]


def test_a_process_that_has_ended_well_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK", 0.01)
    ended: Any = SimpleNamespace(poll=lambda: 0)
    watch = watchdog.Watch([ended])
    watch.start()
    time.sleep(0.1)
    watch.end()
    watch.join(5)
    assert not watch.lost
