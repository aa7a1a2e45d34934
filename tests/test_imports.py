"""The layout: rooms import one way, private Lightning stays in one room, names and sizes of files keep their rules."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lightning_fedhpo"
LAYERS = [
    {"cli", "testing"},
    {"loop"},
    {"tracking", "report", "export"},
    {"setup", "feature_maps"},
    {"plots"},
    {"run"},
    {"executors", "algorithms", "participation", "tuners", "searches"},
    {"client"},
    {"binding", "space", "data", "models"},
    {"_lightning"},
    {"processes"},
    {"arms"},
    {"types", "seeding", "arguments", "machine", "files"},
]
"""From the top down: a room imports from its own layer and from those below."""
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(PACKAGE.rglob("*.py"))
LIGHTNINGS_OBJECTS = {"trainer", "strategy", "module", "pl_module", "fit_loop", "connector", "datamodule"}
"""Names under which the package holds objects of Lightning, or of a class derived from it."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[list[str]]:
    """What a file imports, also for types alone: the parts of the module's name, and the name taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ([*node.module.split("."), alias.name] for alias in node.names)


def private_attributes(tree: ast.AST) -> Iterator[str]:
    """Private attributes that are asked of an object of Lightning."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name in LIGHTNINGS_OBJECTS:
                yield f"{name}.{node.attr}"


def test_imports_go_one_way_and_private_lightning_stays_in_its_room() -> None:
    rooms: dict[str, set[str]] = defaultdict(set)
    wrong = []
    for path in FILES:
        tree, room = ast.parse(path.read_text(encoding="utf-8")), room_of(path)
        for parts in imports(tree):
            if parts[0] == "lightning_fedhpo" and len(parts) > 1 and parts[1] in LEVEL and room in LEVEL:
                rooms[room] |= {parts[1]} - {room}
                if LEVEL[room] > LEVEL[parts[1]]:
                    wrong.append(f"{path} imports {'.'.join(parts)} of a layer above")
            private = "loops" in parts or "connectors" in parts or any(part[0] == "_" for part in parts)
            if parts[0] == "lightning" and room != "_lightning" and private:
                wrong.append(f"{path}: {'.'.join(parts)} is private: import it in _lightning/")
        if room != "_lightning":
            wrong += [f"{path}: {name} is private: reach it in _lightning/" for name in private_attributes(tree)]
    assert wrong == []
    assert {room_of(path) for path in FILES} - {"__init__"} == set(LEVEL)
    list(TopologicalSorter(rooms).static_order())  # raises where rooms import each other in a circle


def test_no_two_rooms_have_a_file_of_the_same_name() -> None:
    names = Counter(path.name for path in FILES if path.name not in ("__init__.py", "base.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_top_has_at_most_six_files() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 6


@pytest.mark.parametrize("folder", ["lightning_fedhpo", "tests", "benchmarks"])
def test_files_are_short(folder: str) -> None:
    sizes = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert {path: size for path, size in sizes.items() if size > 300} == {}
