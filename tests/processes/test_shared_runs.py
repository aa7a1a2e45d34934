"""Two processes, launched as torchrun launches them on two machines: the run is that of one process."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_fedhpo import FederatedLoop, processes
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data
from tests.processes import child
from tests.processes.cases import CASES, differences, mixed, outcome, run, sick
from tests.resume.cases import LIGHTNING_SAYS

ROOT = Path(__file__).parents[2]

pytestmark = [*LIGHTNING_SAYS, pytest.mark.slow]


def _port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    """What both processes have found."""
    folder = tmp_path_factory.mktemp("shared")
    run("searched", folder / "alone")
    shutil.copy(folder / "alone" / "step=12.ckpt", folder / "end.ckpt")
    run("personal", folder / "one")
    shutil.copy(folder / "one" / "step=8.ckpt", folder / "inside.ckpt")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port()), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    command = [sys.executable, "-m", "tests.processes.child", str(folder)]
    both = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment | {"RANK": str(rank), "GROUP_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=240)[0] for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], "\n".join(text[-3000:] for text in said)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)], folder


@pytest.mark.parametrize("name", CASES)
def test_two_processes_run_what_one_runs(name: str, found: Any, tmp_path: Path) -> None:
    first, second = found[0]
    assert not differences(run(name, tmp_path), first[name])
    assert first[name] == second[name], "the processes are not at the same place"


def test_the_files_are_those_of_one_process(found: Any, tmp_path: Path) -> None:
    run("searched", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in (found[1] / "searched").iterdir()
    )


def test_a_checkpoint_of_two_processes_resumes_in_one(found: Any, tmp_path: Path) -> None:
    for step in (8, 12):
        rest = run("searched", tmp_path, ckpt_path=found[1] / "searched" / f"step={step}.ckpt")
        assert not differences(rest, found[0][0]["searched"])


def test_a_checkpoint_of_one_process_resumes_in_two(found: Any) -> None:
    first = found[0][0]
    assert not differences(first["second half"], first["searched"])


def test_a_checkpoint_from_inside_a_round_resumes_in_two(found: Any) -> None:
    first = found[0][0]
    assert not differences(first["inside"], first["personal"])


def _alone(module: ToyModule, **options: Any) -> dict[str, Any]:
    fed = FederatedLoop(cohort=8, executor="sequential", **options)
    trainer = quiet_trainer(3, fed)
    trainer.fit(module, datamodule=toy_data())
    return outcome(fed, trainer, module)


def test_all_begin_with_the_first_ones_weights(found: Any) -> None:
    first, second = found[0]
    assert not differences(_alone(ToyModule()), first["other start"])
    assert first["other start"] == second["other start"]


def test_all_begin_with_what_the_first_ones_hooks_have_made(found: Any) -> None:
    first, second = found[0]
    assert not differences(_alone(child.Hooked()), first["hooked"])
    assert first["hooked"] == second["hooked"]


def test_a_client_that_asks_other_processes_is_answered_by_itself(found: Any) -> None:
    first, second = found[0]
    assert not differences(_alone(ToyModule()), first["asking"])
    assert first["asking"] == second["asking"]


def test_what_one_process_does_alone_is_noticed_before_anything_goes_wrong(found: Any) -> None:
    said = [one["apart"] for one in found[0]]
    assert "this one is at round 1, another one is not" in said[0][0]
    assert "this one is at the end of the run, another one is not" in said[1][0]
    assert [rounds for _, rounds in said] == [1, 1]


@pytest.mark.parametrize("client", [0, 7])
def test_a_client_that_fails_in_one_process_fails_in_both(client: int, found: Any) -> None:
    message = f"RuntimeError: client {client} failed in round 1 of arm 0 with {{}}: OSError: gone"
    assert all(one[f"client {client} fails"].startswith(message) for one in found[0])


@pytest.mark.filterwarnings("ignore:client 7 failed")
def test_a_client_that_is_dropped_in_one_process_is_dropped_in_both(found: Any) -> None:
    expected = _alone(sick(7), on_error="drop")
    assert sum(expected["jobs"]["dropped"]) == 1
    assert all(not differences(expected, one["dropped"]) for one in found[0])


def test_other_data_in_another_process_is_refused(found: Any) -> None:
    for one in found[0]:
        assert one["other data"].startswith("ValueError: all processes must have the same run, process 1 has another")
        assert "- federation: " in one["other data"]


def test_what_one_process_refuses_all_refuse(found: Any) -> None:
    assert all("val_nothing" in one["refused"] for one in found[0])


def test_what_is_larger_than_its_room_goes_round_too(found: Any) -> None:
    assert all(one["large"] == [5, 3 * processes.ROOM + 5] for one in found[0])


def test_sigterm_to_one_between_rounds_ends_all_also_after_the_last(found: Any) -> None:
    assert [one["ended"] for one in found[0]] == [[["SIGTERM", 1], ["SIGTERM", 2], ["SIGTERM", 3]]] * 2


def test_tensors_of_every_kind_are_summed_by_torch(found: Any) -> None:
    everyone = [mixed(rank) for rank in range(2)]
    for rank in range(2):
        got = torch.load(found[1] / f"mixed-{rank}.pt")
        assert got["said"] == [0, 1]
        for tensor, *theirs in zip(got["summed"], *(summed for summed, _ in everyone), strict=True):
            assert torch.equal(tensor, sum(theirs))
        for tensor, *theirs in zip(got["largest"], *(largest for _, largest in everyone), strict=True):
            assert torch.equal(tensor, torch.maximum(*theirs))
