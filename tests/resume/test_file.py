"""What is in a checkpoint, and which checkpoints are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo import (
    BayesianSearch,
    Choice,
    FederatedLoop,
    FedEx,
    FedOpt,
    FedProx,
    FedTune,
    Fixed,
    Float,
    Iid,
    RandomSearch,
    Scaffold,
    SearchSpace,
)
from lightning_fedhpo.data import FederatedData
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run, toy_tensors
from tests.fits import fit
from tests.resume.cases import LIGHTNING_SAYS, comparable

pytestmark = LIGHTNING_SAYS


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a comparable run."""
    folder = tmp_path_factory.mktemp("saved")
    fit(1, ModelCheckpoint(folder, save_last=True))
    return folder / "last.ckpt"


@contextmanager
def refused(path: Path, module: nn.Module, message: str) -> Iterator[None]:
    """See that a resume is refused, and that neither file nor module takes harm."""
    before, weights = path.read_bytes(), comparable(module.state_dict())
    with pytest.raises((ValueError, MisconfigurationException), match=message):
        yield
    assert path.read_bytes() == before
    assert comparable(module.state_dict()) == weights
    assert "on_load_checkpoint" not in vars(module)


@pytest.mark.parametrize(
    ("callbacks", "options", "message"),
    [
        ((), {"algorithm": FedProx(0.1)}, "algorithm.name: 'FedAvg' there, 'FedProx' here"),
        ((Fixed(client={"lr": 0.5}),), {}, "tuner.name: 'Untuned' there, 'Fixed' here"),
        ((), {"seed": 1}, "seed: 0 there, 1 here"),
        ((), {"data": toy_data(seed=1)}, "federation: "),
        ((), {"data": FederatedData(toy_tensors(240), Iid(8), fractions=(0.7, 0.2, 0.1))}, "federation: "),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(callbacks: Any, options: Any, message: str, saved: Path) -> None:
    module = ToyModule()
    with refused(saved, module, rf"(?s)belongs to another run:.*{message}.*Resume with the same settings"):
        fit(3, *callbacks, module=module, path=saved, **options)


def _space(high: float = 1.0) -> SearchSpace:
    return SearchSpace(client={"lr": Float(1e-3, high, log=True)}, server={"momentum": Float(0.0, 0.9)})


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a search with a tuner."""
    folder = tmp_path_factory.mktemp("searched")
    fit(2, RandomSearch(_space(), 4, 2), FedEx(_space(), configs=3), ModelCheckpoint(folder, save_last=True))
    return folder / "last.ckpt"


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (lambda: [RandomSearch(_space(0.5), 4, 2), FedEx(configs=3)], "tuner.space.*search.space.client.lr.high: 1.0"),
        (lambda: [FedEx(_space(), configs=3)], "search: .* there, None here"),
    ],
)
def test_another_space_tuner_or_search_is_refused(others: Any, message: str, searched: Path) -> None:
    with pytest.raises(ValueError, match=rf"(?s)belongs to another run:.*{message}"):
        fit(2, *others(), path=searched)


class Wider(ToyModule):
    """One more layer."""

    def __init__(self, features: int = 8) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, features), nn.ReLU(), nn.Linear(features, 8), *self.net[1:])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Wider, "net.2.weight is missing"),
        (lambda: ToyModule(classes=4), r"net.3.weight has shape \(3, 8\) there, \(4, 8\)"),
    ],
)
def test_a_checkpoint_of_another_module_is_refused(module: Any, message: str, saved: Path) -> None:
    other = module()
    with refused(saved, other, rf"of another module than this .*{message}"):
        fit(3, module=other, path=saved)


@pytest.mark.filterwarnings("ignore:the checkpoint belongs to another run")
@pytest.mark.parametrize(
    ("callbacks", "options", "message"),
    [
        ((), {"algorithm": Scaffold()}, "Scaffold keeps 'control' on the server"),
        ((), {"algorithm": FedOpt("adam")}, "the server has lr, momentum, decay there, lr, beta1, beta2, .* here"),
        ((), {"retrain": 1}, "arms are started later, from initial weights that it does not have"),
        ((FedEx(SearchSpace(client={"lr": Float(0.1, 0.2)}), configs=2),), {}, None),
    ],
)
def test_going_on_all_the_same_ends_where_states_differ(
    callbacks: Any, options: Any, message: str | None, saved: Path
) -> None:
    with nullcontext() if message is None else pytest.raises(ValueError, match=message):
        fit(3, *callbacks, path=saved, on_difference="warn", **options)


@pytest.mark.filterwarnings("ignore:the checkpoint belongs to another run")
def test_a_search_that_learns_does_not_go_on_with_the_arms_of_another(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space = SearchSpace(client={"lr": Float(0.1, 0.2)})
    fit(5, ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1), retrain=1)
    with pytest.raises(ValueError, match="arm 0 has no value of lr, which BayesianSearch learns from: it comes from"):
        fit(12, BayesianSearch(space, budget=12, max_rounds=4), path=tmp_path / "epoch=1.ckpt", on_difference="warn")


@pytest.mark.filterwarnings("ignore:the checkpoint belongs to another run")
def test_fedtune_goes_on_with_its_own_candidates_alone(tmp_path: Path) -> None:
    def run(rates: list[float], path: Path | None = None) -> Any:
        tuner = FedTune(SearchSpace(client={"lr": Choice(rates)}), buffer="shared")
        options = {"cohort": 8, "server_data": toy_tensors(30), "on_difference": "warn"}
        return fit(2, tuner, module=ToyModule(), path=path, **options)[1]

    run([0.1, 0.2]).save_checkpoint(tmp_path / "two.ckpt")
    with pytest.raises(ValueError, match="for 8 clients among 2 candidates, this one for 8 among 3: resume with"):
        run([0.1, 0.2, 0.3], tmp_path / "two.ckpt")


def test_a_checkpoint_of_a_plain_lightning_run_is_refused(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(*toy_tensors(16)), batch_size=8)
    trainer = quiet_trainer(1, ModelCheckpoint(tmp_path, save_last=True), enable_checkpointing=True)
    trainer.fit(ToyModule(), loader, loader)
    fresh = ToyModule()
    with refused(tmp_path / "last.ckpt", fresh, r"not written by a federated run.*before `fit`"):
        fit(3, module=fresh, path=tmp_path / "last.ckpt")


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, saved: Path) -> None:
    checkpoint, path, fresh = torch.load(saved, weights_only=True), tmp_path / "old.ckpt", ToyModule()
    del checkpoint["callbacks"]["FederatedLoop"]["format"]
    torch.save(checkpoint, path)
    with refused(path, fresh, r"old\.ckpt was written by another version of lightning-fedhpo: start anew"):
        fit(3, module=fresh, path=path)


def test_a_file_of_weights_only_is_refused(tmp_path: Path) -> None:
    fit(1, ModelCheckpoint(tmp_path, save_last=True, save_weights_only=True))
    fresh = ToyModule()
    with refused(tmp_path / "last.ckpt", fresh, "holds weights only"):
        fit(3, module=fresh, path=tmp_path / "last.ckpt")


def test_after_a_refusal_loop_and_module_start_anew(saved: Path) -> None:
    fed, module = FederatedLoop(cohort=3, seed=1, executor="sequential"), ToyModule()
    with pytest.raises(ValueError, match="seed"):
        fit(2, fed=fed, module=module, path=saved)
    fit(2, fed=fed, module=module)  # the first one keeps what it has read from the file
    assert fed.result.history == toy_run(2, seed=1)[0].result.history


def test_the_modules_own_hook_may_translate_an_older_checkpoint(tmp_path: Path, saved: Path) -> None:
    checkpoint = torch.load(saved, weights_only=True)
    checkpoint["state_dict"] = {f"old.{name}": tensor for name, tensor in checkpoint["state_dict"].items()}
    torch.save(checkpoint, tmp_path / "old.ckpt")

    class Translates(ToyModule):
        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            tensors = checkpoint["state_dict"]
            checkpoint["state_dict"] = {name.removeprefix("old."): tensor for name, tensor in tensors.items()}

    fit(3, module=Translates(), path=tmp_path / "old.ckpt")
