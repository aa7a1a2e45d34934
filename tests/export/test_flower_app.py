"""``fedhpo-export flower``: the app trains as the run did, and what it cannot have is refused."""

from __future__ import annotations

import gc
import importlib
import json
import logging
import py_compile
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict

from lightning_fedhpo import FedOpt
from lightning_fedhpo.cli.export import main
from lightning_fedhpo.cli.main import train
from lightning_fedhpo.export import ClientBatches, write_flower_app
from lightning_fedhpo.export.flower_server import server_step
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
RUNS: dict[str, tuple[list[str], dict[str, Any], bool]] = {
    "momentum": (["algorithm.momentum=0.6", "algorithm.decay=0.1"], {**CLIENT, "momentum": 0.5}, False),
    "proximal": (["algorithm=fedprox", "algorithm.mu=0.5", "trainer.accumulate_grad_batches=2"], CLIENT, False),
    "adam": (["algorithm=fedopt", "algorithm.lr=0.05", "algorithm.weighting=uniform"], CLIENT, False),
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
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    with quiet(tmp_path / "home"):
        yield
    logger.setLevel(level)  # the app raises it
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tuned", "mynet")]:
        del sys.modules[name]


@pytest.fixture(autouse=True, scope="module")
def no_classes_left() -> Iterator[None]:
    """LightningCLI lists the subclasses that are left, and would import their modules."""
    yield
    gc.collect()


def run_of(settings: Sequence[str] = (), client: Mapping[str, Any] | None = None, own: bool = False) -> Path:
    """Run ``fedhpo`` for three rounds, and return the run's folder."""
    cfg = composed(Path("run").absolute(), "search=none", "tuner=fixed", "trainer.max_epochs=3", *settings)
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
    assert len(cohorts) == 3
    for key, tensor in expected.items():
        if "num_batches" not in key:
            np.testing.assert_allclose(model[key], tensor, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("optimizer", ["corrected", "yogi", "adagrad"])
def test_the_server_steps_as_the_run_did(optimizer: str, tmp_path: Path) -> None:
    corrected = optimizer == "corrected"
    method = FedOpt("adam" if corrected else optimizer, lr=0.3, decay=0.1, bias_correction=corrected)  # type: ignore[arg-type]
    section = {"_target_": "lightning_fedhpo.FedOpt", "optimizer": method.optimizer, "bias_correction": corrected}
    found: dict[str, Any] = {}
    exec(server_step(section), found)
    module = torch.nn.Linear(3, 2)
    step, weights = found["ServerStep"](module, method.server), [one.detach().clone() for one in module.parameters()]
    theirs, model = method.server_optimizer(weights, method.server), module.state_dict()
    for number in range(5):
        mean = {name: torch.randn_like(one) for name, one in model.items()}
        model = step(mean, number + 1)
        for weight, one in zip(weights, mean.values(), strict=True):
            weight.grad = weight - one
        theirs.param_groups[0]["lr"] = 0.3 * 0.9**number
        theirs.step()
        for weight, one in zip(weights, model.values(), strict=True):
            torch.testing.assert_close(one, weight)


SCAFFOLD = {"_target_": "lightning_fedhpo.algorithms.SCAFFOLD"}
REFUSED: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "states": (lambda settings, best: settings.update(algorithm=SCAFFOLD), "control variates"),
    "another": (lambda settings, best: settings["algorithm"].update(_target_="mine.FedAvg"), "its own"),
    "local": (lambda settings, best: settings["algorithm"].update(local=["head.*"]), "sends the whole model"),
    "per client": (lambda settings, best: best.update(clients={"0": {"lr": 1}}), "which number it is"),
    "script": (lambda settings, best: settings["model"].update(_target_="__main__.Net"), "module of its own"),
    "list": (lambda settings, best: best["client"].update(betas=[0.9, 0.99]), "numbers, texts, true and false"),
    "cycle": (lambda settings, best: best["client"].update(max_lr=0.1), "configure_optimizers"),
    "damaged": (lambda settings, best: settings.pop("trainer"), "config.yaml"),
}
"""What is changed in a run's settings and in what it has found, and what the refusal says."""


def test_what_an_app_cannot_have_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    run, app = run_of(), Path("app")
    kept = {name: (run / name).read_text() for name in ("config.yaml", "summary.json")}
    for what, (change, reason) in REFUSED.items():
        settings: Any = OmegaConf.to_container(OmegaConf.create(kept["config.yaml"]))
        summary = json.loads(kept["summary.json"])
        change(settings, summary["best"])
        OmegaConf.save(settings, run / "config.yaml")
        (run / "summary.json").write_text(json.dumps(summary))
        assert main(["flower", str(run), str(app)]) == 1, what
        told = capsys.readouterr().err
        assert told.startswith("fedhpo-export: ") and reason in told and len(told.splitlines()) == 1, what
        assert not app.exists(), what
    (run / "summary.json").unlink()
    assert main(["flower", str(run), str(app)]) == 1  # not finished
    assert "a finished run has a summary.json" in capsys.readouterr().err
    for name, text in kept.items():
        (run / name).write_text(text)
    app.mkdir()
    assert main(["flower", str(run), str(app)]) == 0
    assert main(["flower", str(run), str(app)]) == 1
    assert "a new folder or an empty one" in capsys.readouterr().err


def test_an_app_of_a_users_data_has_their_modules_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(["data.size_spread=0"], own=True)
    settings = OmegaConf.load(run / "config.yaml")
    Path("table.csv").touch()
    settings.data = {"_target_": "lightning_fedhpo.data.table", "path": "table.csv", "targets": "run", "clients": 8}
    settings.clients = {"_target_": "lightning_fedhpo.participation.ClientsInTurn"}
    OmegaConf.save(settings, run / "config.yaml")
    assert main(["flower", str(run), "app"]) == 0
    told = capsys.readouterr().out
    data = Path("app/tuned/data.py").read_text()
    assert f'"path": "{Path.cwd()}/table.csv"' in data and '"targets": "run"' in data  # a column, not our folder
    assert Path("app/mynet.py").read_text() == MODULE and "mynet.py" in told and "ClientsInTurn" in told
    assert '--federation-config "num-supernodes=8"' in told
    assert ("pip install 'lightning-fedhpo[flower]'" in told) == (find_spec("flwr") is None)
    settings.data = {"_target_": "lightning_fedhpo.FederatedData", "clients": 8, "fingerprint": "0"}  # as of a script
    OmegaConf.save(settings, run / "config.yaml")
    app = write_flower_app(run, Path("other"))
    assert "say in tuned/data.py" in app.notes[0] and "save_hyperparameters" in app.notes[1]
    assert "NotImplementedError" in Path("other/tuned/data.py").read_text()
