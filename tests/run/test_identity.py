"""A resume says what is different from the run that wrote the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_fedhpo import FederatedData, FederatedLoop, FedEx, Fixed, Float, Iid, RandomSearch, SearchSpace
from lightning_fedhpo.testing import ToyModule, toy_tensors
from tests.fits import fit
from tests.resume.cases import LIGHTNING_SAYS, comparable

pytestmark = LIGHTNING_SAYS


class Module(ToyModule):
    """A module with hyperparameters, a schedule, and as many parameter groups as weights."""

    def __init__(self, weight_decay: float = 0.0, gamma: float = 1.0, optimizer: str = "SGD", **toy: Any) -> None:
        super().__init__(**toy)
        self.save_hyperparameters("weight_decay")
        self.gamma, self.optimizer = gamma, optimizer

    def configure_optimizers(self) -> Any:
        groups = [{"params": [weight], "weight_decay": self.hparams["weight_decay"]} for weight in self.parameters()]
        optimizer = getattr(torch.optim, self.optimizer)(groups, lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=self.gamma)]


def _fit(rounds: int, *callbacks: Any, path: Any = None, **changed: Any) -> tuple[FederatedLoop, Module]:
    """Run with some settings changed: of the module, the data, the loop or the Trainer."""

    def chosen(*names: str) -> dict[str, Any]:
        return {name: changed.pop(name) for name in names if name in changed}

    module = Module(**chosen("lr", "dropout", "weight_decay", "gamma", "optimizer"))
    own = chosen("batch_size", "eval_batch_size")
    data = FederatedData(toy_tensors(240), Iid(8), **({"batch_size": 8} | own))
    options = chosen("on_difference", "log_arms", "verify", "executor", "evaluate_at")
    fed, _, _ = fit(rounds, *callbacks, module=module, data=data, path=path, trainer=changed, **options)
    return fed, module


KEPT = {"weight_decay": 0.01, "dropout": 0.1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a run's first round."""
    folder = tmp_path_factory.mktemp("saved")
    keep = ModelCheckpoint(folder, save_last=True)
    _fit(1, keep, **KEPT)
    return folder / "last.ckpt"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lr": 0.2}, r"optimizers.0.groups.0.lr: 0.1 there, 0.2 here"),
        ({"optimizer": "Adam"}, r"optimizers.0.class: 'SGD' there, 'Adam' here"),
        ({"weight_decay": 0.02}, r"hparams.weight_decay: 0.01 there, 0.02 here"),
        ({"dropout": 0.2}, r"dropout.0: 0.1 there, 0.2 here"),
        ({"batch_size": 16}, r"data.batch_size: 8 there, 16 here"),
    ],
)
def test_what_would_be_another_run_is_refused_with_both_values(changed: Any, message: str, saved: Path) -> None:
    with pytest.raises(ValueError, match=rf"(?s)belongs to another run:.*- {message}.*on_difference='warn'"):
        _fit(2, path=saved, **(KEPT | changed))


def test_what_does_not_change_the_run_may_differ(saved: Path) -> None:
    free = {"log_arms": "all", "verify": False, "executor": "auto", "evaluate_at": [2], "enable_progress_bar": True}
    fed, _ = _fit(3, path=saved, limit_test_batches=1, **KEPT, **free)
    assert fed.result.ledger["rounds"] == 3


@pytest.mark.filterwarnings("ignore:a client.s training left every weight")
def test_a_difference_goes_on_with_a_warning_where_that_is_wished(saved: Path) -> None:
    """The new rate is in force: a rate of zero moves nothing any more."""
    before = torch.load(saved, weights_only=True)["state_dict"]
    with pytest.warns(UserWarning, match=r"(?s)another run:\n- optimizers.*lr: 0.1 there, 0.0 here.*all the same"):
        fed, module = _fit(2, path=saved, on_difference="warn", **KEPT, lr=0.0)
    assert fed.result.jobs["lr"] == [0.1] * 3 + [0.0] * 3
    assert comparable(module.state_dict()) == comparable(before)


def test_a_missing_state_of_the_tuner_is_no_state(tmp_path: Path) -> None:
    def tuner() -> FedEx:
        return FedEx(SearchSpace(client={"lr": Float(0.01, 0.5, log=True)}), configs=3)

    fit(2, tuner(), ModelCheckpoint(tmp_path, save_last=True))
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    del checkpoint["callbacks"]["FedEx"]
    torch.save(checkpoint, tmp_path / "without.ckpt")
    with pytest.raises(ValueError, match="FedEx: no state there, one is needed here"):
        fit(3, tuner(), path=tmp_path / "without.ckpt")
    with pytest.warns(UserWarning, match="FedEx: no state there"):
        fed, _, _ = fit(3, tuner(), path=tmp_path / "without.ckpt", on_difference="warn")
    assert fed.result.ledger["rounds"] == 3


def test_what_is_tuned_does_not_count_as_the_modules_own(tmp_path: Path) -> None:
    """After a run the module has the best values on it, also when the run goes on from a file."""

    class Smooths(ToyModule):
        def __init__(self) -> None:
            super().__init__(dropout=0.1)
            self.save_hyperparameters({"smoothing": 0.0, "classes": 3})

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            smoothing = self.hparams["smoothing"]
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1], label_smoothing=smoothing)

    module = Smooths()
    best = {"dropout": 0.3, "hparams.smoothing": 0.2}
    fit(1, Fixed(best), ModelCheckpoint(tmp_path, save_last=True), module=module)
    assert module.hparams["smoothing"] == 0.2
    assert module.net[2].p == 0.3
    fed, _, _ = fit(2, Fixed(best), module=module, path=tmp_path / "last.ckpt")
    assert fed.result.ledger["rounds"] == 2


class Hyper(ToyModule):
    """Takes its rates from ``hparams``: the second group's is a tenth of the first's."""

    def __init__(self, lr: float = 0.1, weight_decay: float = 0.01, share: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters(ignore="share")
        self.share = share

    def configure_optimizers(self) -> Any:
        first, *others = self.parameters()
        groups = [{"params": [first]}, {"params": others, "lr": self.hparams["lr"] * self.share}]
        decay = self.hparams["weight_decay"]
        optimizer = torch.optim.SGD(groups, lr=self.hparams["lr"], weight_decay=decay)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def test_the_saved_module_knows_what_was_found_and_goes_on(tmp_path: Path) -> None:
    space = SearchSpace(client={"lr": Float(0.2, 0.5), "weight_decay": Float(0.02, 0.05)})
    module, half = Hyper(), ModelCheckpoint(tmp_path, "half", every_n_epochs=2, save_top_k=1)
    best = ModelCheckpoint(tmp_path, "best", monitor="val_loss", save_weights_only=True)
    fed, _, _ = fit(3, RandomSearch(space, 6, 3), best, half, module=module)
    found = {name: fed.result.best["client"][name] for name in space.client}
    assert {**module.hparams} == found
    for name in ("best", "half"):
        saved = Hyper.load_from_checkpoint(tmp_path / f"{name}.ckpt")
        assert any(arm["client"] == {**saved.hparams} for arm in fed.result.arms)
    resumed, _, again = fit(3, RandomSearch(space, 6, 3), module=saved, path=tmp_path / "half.ckpt")
    assert comparable(again.state_dict()) == comparable(module.state_dict())
    assert resumed.result.history.to_dict() == fed.result.history.to_dict()
    with pytest.raises(ValueError, match=r"ratios of groups.lr.1: 0.1 there, 0.2 here"):
        fit(3, RandomSearch(space, 6, 3), module=Hyper(share=0.2), path=tmp_path / "half.ckpt")
