"""Runs on a device that is not the CPU: in a process of their own, since torch takes such a device for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import process

TESTS = Path(__file__).with_name("on_standin_device.py")


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_runs_on_another_device(which: str) -> None:
    pytest.importorskip("torch._C._acc", reason="this torch has no devices written in Python")
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", which]
    done = process("-m", "pytest", *options, str(TESTS), cwd=TESTS.parents[2])
    assert done.returncode == 0, done.stdout[-4000:]
