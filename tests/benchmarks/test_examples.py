"""The examples in the suite's docstrings."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import benchmarks

FOLDER = Path(benchmarks.__file__).parent
NAMES = [f"benchmarks.{path.stem}" for path in sorted(FOLDER.glob("*.py"))] + ["benchmarks.others.environments"]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name: str) -> None:
    assert doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
