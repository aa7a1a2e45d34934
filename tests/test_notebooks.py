"""The notebooks of docs/: they are there with their outputs, and they run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
of_each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@of_each
def test_outputs_are_included(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run from top to bottom"
    kinds = {
        kind
        for cell in cells
        for output in cell["outputs"]
        for kind in (output["output_type"], *output.get("data", ()))
    }
    assert "image/png" in kinds and "error" not in kinds
    assert len(text) < 500_000
    assert "site-packages" not in text, "a warning with a path of somebody's machine"


@pytest.mark.slow
@of_each
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of jupyter_client
def test_cells_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    shown = [[output["output_type"] for output in cell.get("outputs", ())] for cell in notebook.cells]
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    asyncio.run(client.async_execute())
    kept = [[output["output_type"] for output in cell.get("outputs", ())] for cell in notebook.cells]
    assert [set(kinds) for kinds in kept] == [set(kinds) for kinds in shown]
