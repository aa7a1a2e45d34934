"""The layout: imports go one way, private Lightning stays in one room, names and sizes of files keep their rules."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lightning_fedhpo"
LAYERS = [
    {"cli", "testing"},
    {"loop"},
    {"tracking", "report"},
    {"setup", "run", "plots", "executors", "algorithms", "participation", "tuners", "searches", "feature_maps"},
    {"client", "binding", "space", "data", "models", "processes", "_lightning", "arms"},
    {"types", "seeding", "arguments", "machine", "files"},
]
"""From the top down: a room imports from its own layer and from those below."""
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """The modules that a file imports when it runs, each with a name taken from it."""
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        nodes += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return
    for module, name in imports(path):
        parts = [part for part in (*module.split("."), name) if part]
        if parts[0] == "lightning_fedhpo" and parts[1:] and parts[1] in LEVEL:
            assert LEVEL[room_of(path)] <= LEVEL[parts[1]], f"imports {module}"
        if parts[0] == "lightning" and room_of(path) != "_lightning":
            private = "loops" in parts or "connectors" in parts or any(part[0] == "_" for part in parts)
            assert not private, f"{module}.{name} is private: import it in _lightning/"


def test_every_room_has_a_layer() -> None:
    assert {room_of(path) for path in FILES} - {"__init__"} == set(LEVEL)


def test_no_two_rooms_have_a_file_of_the_same_name() -> None:
    names = Counter(path.name for path in FILES if path.name not in ("__init__.py", "base.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_top_has_at_most_six_files() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 6


@pytest.mark.parametrize("folder", ["lightning_fedhpo", "tests", "benchmarks"])
def test_files_are_short(folder: str) -> None:
    sizes = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert {path: size for path, size in sizes.items() if size > 300} == {}
