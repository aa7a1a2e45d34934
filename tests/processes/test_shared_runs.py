"""Two processes, told of each other as torchrun does: the run is that of one process."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_fedhpo.testing import ToyModule
from tests.fits import fit
from tests.processes.cases import CASES, METHODS, differences, outcome, run, sick
from tests.processes.child import map_scores
from tests.resume.cases import KEEP, LIGHTNING_SAYS
from tests.runs import process

ROOT = Path(__file__).parents[2]

pytestmark = [*LIGHTNING_SAYS, pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcomes of one process; its files are in the folder beside them."""
    folder = tmp_path_factory.mktemp("alone")
    return {"folder": folder} | {name: run(name, folder / name) for name in CASES}


@pytest.fixture(scope="module")
def found(alone: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    """The outcomes of both processes, and the folder of their files."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(alone["folder"] / "searched" / "step=12.ckpt", folder / "end.ckpt")
    shutil.copy(alone["folder"] / "personal" / "step=8.ckpt", folder / "inside.ckpt")
    return launched(folder, "main"), folder


def launched(folder: Path, what: str) -> list[dict[str, Any]]:
    """Return what two processes find."""
    done = process("-m", "tests.processes.child", str(folder), what, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder / "said").write_text(done.stderr)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_run_what_one_runs(name: str, alone: Any, found: Any) -> None:
    first, second = found[0]
    assert not differences(alone[name], first[name])
    assert first[name] == second[name], "the processes are not at the same place"
    assert sorted(path.name for path in (alone["folder"] / name).iterdir()) == sorted(
        path.name for path in (found[1] / name).iterdir()
    )


def test_a_checkpoint_of_any_number_of_processes_resumes_in_any_other(alone: Any, found: Any, tmp_path: Path) -> None:
    first, folder = found[0][0], found[1]
    assert not differences(first["second half"], first["searched"])
    assert not differences(first["inside"], first["personal"]), "from inside a round"
    for step in (8, 12):
        rest = run("searched", tmp_path, path=folder / "searched" / f"step={step}.ckpt")
        assert not differences(rest, alone["searched"])


@pytest.mark.filterwarnings("ignore:client 7 failed")
@pytest.mark.parametrize("name", ["other start", "asking", "dropped"])
def test_what_differs_between_processes_does_not_matter(name: str, found: Any) -> None:
    """Other initial weights, a client's questions to other processes, and a client that fails in one process."""
    dropped = name == "dropped"
    module = sick(7) if dropped else ToyModule()
    expected = outcome(*fit(3, module=module, cohort=8, on_error="drop" if dropped else "raise"))
    assert sum(expected["jobs"]["dropped"]) == dropped
    assert all(not differences(expected, one[name]) for one in found[0])
    assert found[0][0][name] == found[0][1][name]


@pytest.mark.parametrize(
    ("name", "message", "rounds"),
    [
        ("client 0 fails", "RuntimeError: client 0 failed in round 1 of arm 0 with {}: OSError: gone", 1),
        ("client 7 fails", "RuntimeError: client 7 failed in round 1 of arm 0 with {}: OSError: gone", 1),
        ("other data", "ValueError: all processes must have the same run, process 1 has another one:\n- federation", 0),
        ("refused", "val_nothing", 0),
        ("apart", "the processes of this run are no longer at the same place: this one is at", 1),
        ("ended", "SIGTERMException", 2),
    ],
)
def test_the_end_of_one_is_the_end_of_both(name: str, message: str, rounds: int, found: Any) -> None:
    for said, done in (one[name] for one in found[0]):
        assert message in said and done == rounds


def test_where_the_first_process_is_killed_the_next_one_writes_and_speaks(found: Any) -> None:
    assert "LostProcessError: another process of this run has ended" in (found[1] / "said").read_text()
    assert torch.load(found[1] / "on_exception.ckpt", weights_only=True)["epoch"] == 1


def test_maps_are_scored_on_the_examples_of_both(found: Any) -> None:
    """An ordinary Trainer: each process has half of the validation examples, and the mean is the score of all."""
    expected, first, second = map_scores(), *(one["maps"] for one in found[0])
    assert first == second and [name for name, _ in first] == [name for name, _ in expected]
    assert [score for _, score in first] == pytest.approx([score for _, score in expected], rel=1e-5)


def test_tensors_of_every_kind_are_summed(found: Any) -> None:
    assert all(one["sums"] == [True] * 7 and one["largest"] == [True] * 3 for one in found[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Scaffold takes a local step", "ignore:no client was available")
def test_every_method_with_a_state_is_shared(tmp_path: Path) -> None:
    """Also with drop-outs, noise, and states in files, which another number of processes has written."""
    one, two, moved = (tmp_path / name for name in ("one", "two", "two/moved"))
    alone = {name: run(name, one / name) for name in METHODS}
    shutil.copytree(one / "scaffold" / "client_states", moved / "client_states")
    shutil.copy(one / "scaffold" / "step=8.ckpt", moved / "any.ckpt")
    first, second = launched(two, "methods")
    assert first == second, "the processes are not at the same place"
    assert {name: found for name in METHODS if (found := differences(alone[name], first[name]))} == {}
    assert not differences(alone["scaffold"], first["second half"])
    rest = run("scaffold", two / "scaffold", path=two / "scaffold" / "step=8.ckpt")
    assert not differences(alone["scaffold"], rest)
    for name in METHODS:
        jobs, history = alone[name]["jobs"], alone[name]["history"]
        assert any(jobs["lost"]) if name in KEEP else 0 in history["clients"]
        assert any(alone[name]["clients"]) == (name not in ("fedpa", "maml"))
