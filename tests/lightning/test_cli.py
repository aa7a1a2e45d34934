"""A whole run from a YAML by LightningCLI: the one of docs/lightning-cli.md."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch.cli import LightningCLI

from lightning_fedhpo import FederatedData, FederatedLoop
from tests.runs import quiet_surroundings
from tests.test_readme import blocks

__all__ = ["quiet_surroundings"]
pytest.importorskip("jsonargparse", reason="needs the extra `cli`")

MY_PROJECT = """
import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, Dataset, TensorDataset
from lightning_fedhpo.testing import ToyModule, toy_tensors

class Net(ToyModule):
    def __init__(self, lr: float = 0.5) -> None:
        super().__init__(lr=lr)

class NoOptimizer(ToyModule):
    configure_optimizers = None

class Rows(Dataset):
    def __init__(self, examples: int = 96) -> None:
        self.rows = TensorDataset(*toy_tensors(examples))
        self.targets = self.rows.tensors[1]
    def __len__(self) -> int:
        return len(self.rows)
    def __getitem__(self, place: int):
        return self.rows[place]

class Points(LightningDataModule):
    def __init__(self, batch_size: int, examples: int = 96) -> None:
        super().__init__()
        self.save_hyperparameters()
    def train_dataloader(self) -> DataLoader:
        rows = TensorDataset(*toy_tensors(self.hparams.examples))
        return DataLoader(rows, batch_size=self.hparams.batch_size, shuffle=True)
"""
CONFIG = yaml.safe_load(blocks("lightning-cli.md", "yaml")[0])
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


@pytest.fixture(autouse=True)
def my_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_project.py").write_text(MY_PROJECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning's
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "my_project", None)
    del sys.modules["my_project"]  # made anew in every test, and put back


def run(config: Any, *arguments: str, **options: Any) -> tuple[FederatedLoop, LightningCLI]:
    """Write a configuration down and run it."""
    config = copy.deepcopy(config)
    config["trainer"] |= QUIET
    config["trainer"]["callbacks"][0]["init_args"]["executor"] = "sequential"
    Path("config.yaml").write_text(yaml.safe_dump(config))
    modes: Any = {"subclass_mode_model": True, "subclass_mode_data": True, "save_config_kwargs": {"overwrite": True}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["main.py", "fit", "--config", "config.yaml", *arguments])
        cli = LightningCLI(**(modes | options))
    return next(one for one in cli.trainer.callbacks if isinstance(one, FederatedLoop)), cli


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_the_page_s_run_tunes_and_goes_on_from_its_checkpoint() -> None:
    fed, cli = run(CONFIG)
    assert fed.result.ledger["rounds"] == 6
    assert set(fed.result.best["client"]) >= {"lr", "momentum"}
    assert {row["config"] for row in fed.result.configs} == set(map(str, range(9)))
    data = cli.datamodule
    assert isinstance(data, FederatedData)
    assert (data.batch_size, data.hparams["batch_size"], data.hparams["examples"]) == (4, 4, 96)
    assert "partition" not in data.hparams
    (saved,) = Path("checkpoints").glob("*.ckpt")
    again, _ = run(CONFIG, "--ckpt_path", str(saved))
    assert repr(again.result.history) == repr(fed.result.history)


def test_a_data_set_an_optimizer_and_a_space_by_class_paths() -> None:
    config = copy.deepcopy(CONFIG)
    config["model"] = {"class_path": "my_project.NoOptimizer"}
    config["optimizer"] = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
    config["data"]["init_args"]["dataset"] = {"class_path": "my_project.Rows"}
    space = config["trainer"]["callbacks"][1]["init_args"]["space"]["init_args"]
    space["client"] = {"lr": {"class_path": "lightning_fedhpo.Float", "init_args": {"low": 0.01, "high": 0.1}}}
    fed, _ = run(config)
    assert 0.01 <= fed.result.best["client"]["lr"] <= 0.1


def test_with_the_data_s_class_in_the_program() -> None:
    config = CONFIG | {"data": CONFIG["data"]["init_args"]}
    _, cli = run(config, subclass_mode_data=False, datamodule_class=FederatedData)
    assert cli.datamodule.hparams["batch_size"] == 4


@pytest.mark.parametrize(
    "arguments", [["--print_config"], ["--help"], ["--trainer.callbacks.help", "lightning_fedhpo.FedEx"]]
)
def test_what_it_prints(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(CONFIG, *arguments)
    said = capsys.readouterr().out
    assert end.value.code == 0
    if arguments == ["--print_config"]:
        printed = yaml.safe_load(said)
        assert (
            printed["trainer"]["callbacks"][2]["init_args"] | {"configs": 9, "epsilon": 0.1}
            == (printed["trainer"]["callbacks"][2]["init_args"])
        )
