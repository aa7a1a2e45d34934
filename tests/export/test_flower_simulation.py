"""Flower's own simulation of an exported app: the same cohorts and order of examples give the run's weights.

Flower is installed into an environment of its own: `make test-flower`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_fedhpo.cli.export import main
from lightning_fedhpo.cli.main import train
from tests.runs import composed, quiet, rows

pytestmark = [pytest.mark.thirdparty, pytest.mark.filterwarnings("default")]
pytest.importorskip("flwr", reason="Flower: make test-flower installs it")

BIN = Path(sys.executable).parent
RUNS = {
    "momentum": ["algorithm.lr=0.8", "algorithm.momentum=0.6", "algorithm.decay=0.1"],
    "proximal": ["algorithm=fedprox", "algorithm.mu=0.5"],
    "adam": ["algorithm=fedopt", "algorithm.lr=0.05"],
}
CLIENTS = 4


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start what `flwr run` talks to, as `flwr run` does itself; return the environment that finds it."""
    home = tmp_path_factory.mktemp("flower")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    environment |= {"FLWR_DISABLE_UPDATE_CHECK": "1", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    command = [str(BIN / "flower-superlink"), "--insecure", "--simulation", "--isolation", "subprocess"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with (home / "log").open("w") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as link:
        yield environment
        link.terminate()


@pytest.mark.parametrize("name", RUNS)
def test_flowers_simulation_gives_the_runs_weights(name: str, flower: dict[str, str], tmp_path: Path) -> None:
    run, app = tmp_path / "run", tmp_path / "app"
    small = ["search=none", "tuner=fixed", "trainer.max_epochs=5", f"data.clients={CLIENTS}", "fed.cohort=2"]
    with quiet(tmp_path / "home"):
        train(composed(run, *small, "tuner.client.batch_size=4", "tuner.client.epochs=2", *RUNS[name]))
        assert main(["flower", str(run), str(app)]) == 0
    cohorts: dict[int, list[int]] = {}
    for row in rows(run / "jobs.csv"):
        cohorts.setdefault(int(row["round"]) + 1, []).append(int(row["client"]))
    client = app / "tuned" / "client_app.py"
    text = client.read_text()
    weight = f'examples * (context.node_config["partition-id"] in {cohorts}[server_round])'
    assert '"num-examples": examples})\n    return Message(RecordDict({"arrays"' in text
    client.write_text(text.replace('"num-examples": examples', f'"num-examples": {weight}', 1))
    command = [str(BIN / "flwr"), "run", str(app), "--stream", "--run-config", f"cohort={CLIENTS}"]
    command += ["--federation-config", f"num-supernodes={CLIENTS}"]
    for _ in range(30):  # until the link listens
        done = subprocess.run(command, env=flower, capture_output=True, text=True, timeout=300, check=False)
        if "Successfully started run" in done.stdout:
            break
        time.sleep(1)
    assert (app / "model.pt").is_file(), done.stdout + done.stderr
    found = torch.load(app / "model.pt", weights_only=True)
    expected = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert list(found) == list(expected)
    for key, tensor in expected.items():
        np.testing.assert_allclose(found[key], tensor, atol=1e-5, err_msg=key)
