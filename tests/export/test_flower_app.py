"""``fedhpo-export flower``: the app trains as the run did, and what it cannot have is refused."""

from __future__ import annotations

import importlib
import py_compile
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict

from lightning_fedhpo.cli.export import main
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.export import ClientBatches
from tests.runs import composed, quiet, rows

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10 has it under another name, which pytest brings along
    import tomli as tomllib

MODULE = """
import torch
from lightning.pytorch import LightningModule
from torch.nn import functional


class Net(LightningModule):
    def __init__(self, hidden=6, smoothing=0.0):
        super().__init__()
        self.save_hyperparameters()
        layers = torch.nn.Linear(5, hidden, bias=False), torch.nn.BatchNorm1d(hidden), torch.nn.Dropout(0.0)
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(hidden, 3))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return functional.cross_entropy(self.net(x), y, label_smoothing=self.hparams.smoothing)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", functional.cross_entropy(self.net(x), y))

    test_step = validation_step

    def configure_optimizers(self):
        first, *_, last = self.net
        groups = [{"params": [*first.parameters(), *self.net[1].parameters()], "weight_decay": 0.0}]
        groups += [{"params": last.parameters(), "lr": 0.05, "weight_decay": 0.01}]
        optimizer = torch.optim.AdamW(groups, lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]
"""
CLIENT = {"lr": 0.02, "batch_size": 4, "epochs": 2, "weight_decay": 0.1, "decay": 0.1}
GROUPS = {"lr": 0.02, "lr.1": 0.03, "beta1": 0.8, "eps": 1e-4, "hparams.smoothing": 0.2, "dropout": 0.0}
ADAPTIVE = ["algorithm=fedopt", "algorithm.lr=0.05"]
RUNS: dict[str, tuple[list[str], dict[str, Any], bool]] = {
    "momentum": (["algorithm.momentum=0.6", "algorithm.decay=0.1"], {**CLIENT, "momentum": 0.5}, False),
    "proximal": (["algorithm=fedprox", "algorithm.mu=0.5", "trainer.accumulate_grad_batches=2"], CLIENT, False),
    "adam": (ADAPTIVE, CLIENT, False),
    "corrected": ([*ADAPTIVE, "algorithm.bias_correction=true"], CLIENT, False),
    "yogi": ([*ADAPTIVE, "algorithm.optimizer=yogi", "algorithm.weighting=uniform"], CLIENT, False),
    "adagrad": ([*ADAPTIVE, "algorithm.optimizer=adagrad"], CLIENT, False),
    "groups": (["trainer.gradient_clip_val=0.5", "data.size_spread=0"], {**CLIENT, **GROUPS}, True),
    "rounds": (["fed.schedules=rounds", "data.size_spread=0"], CLIENT, True),
}
"""The settings of a run, its clients' values, and whether its module is the user's own."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user's folder with a module of their own."""
    (tmp_path / "mynet.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with quiet(tmp_path / "home"):
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tuned", "mynet")]:
        del sys.modules[name]


def run_of(settings: Sequence[str] = (), client: Mapping[str, Any] | None = None, own: bool = False) -> Path:
    """Run ``fedhpo`` for five rounds, and return the run's folder."""
    cfg = composed(Path("run").absolute(), "search=none", "tuner=fixed", "trainer.max_epochs=5", *settings)
    with open_dict(cfg):
        cfg.tuner.client = dict(client or CLIENT)
        cfg.model = {"_target_": "mynet.Net", "hidden": 4} if own else cfg.model
    train(cfg)
    return Path("run")


def exported(run: Path, app: str = "app") -> tuple[ModuleType, ModuleType, dict[str, Any]]:
    """Export a run; return what the app's client and server do without Flower, and its settings."""
    assert main(["flower", str(run), app]) == 0
    for path in Path(app).rglob("*.py"):
        py_compile.compile(str(path), doraise=True)
    sys.path.insert(0, str(Path(app).absolute()))
    try:
        task, server = (importlib.import_module(f"tuned.{name}") for name in ("task", "server_step"))
    finally:
        sys.path.remove(str(Path(app).absolute()))
    return task, server, tomllib.loads(Path(app, "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


@pytest.mark.parametrize("name", RUNS)
def test_the_app_trains_as_the_run_did(name: str) -> None:
    run = run_of(*RUNS[name])
    task, server, settings = exported(run)
    cfg = OmegaConf.load(run / "config.yaml")
    data = instantiate(cfg.data, _convert_="all")
    torch.manual_seed(0)
    module = task.make_model()
    step = server.ServerStep(module, settings["server"])
    model = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    cohorts = defaultdict(list)
    for row in rows(run / "jobs.csv"):
        cohorts[int(row["round"])].append(int(row["client"]))
    for number in sorted(cohorts):  # from 0, as in the run's tables
        models, weights = [], []
        for client in cohorts[number]:
            module = task.make_model()
            module.load_state_dict(model)
            batches = ClientBatches(data, client, "train", settings["client"]["batch_size"], round=number)
            task.train(module, batches, settings["client"], number + 1)
            models.append(module.state_dict())
            weights.append(1.0 if "uniform" in str(RUNS[name]) else batches.examples)
        mean = {key: sum(w * one[key] for w, one in zip(weights, models, strict=True)) / sum(weights) for key in model}
        model = step(mean, number + 1)
    expected = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert len(cohorts) == 5
    for key, tensor in expected.items():
        if "num_batches" not in key:
            np.testing.assert_allclose(model[key], tensor, atol=1e-5, err_msg=key)
