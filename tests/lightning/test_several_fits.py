"""One Trainer, several calls: ``fit`` goes on where it was, and everything else works as always."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo import FederatedLoop
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_run, toy_tensors


def _same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_a_new_trainer_is_a_new_run() -> None:
    fed, _, _ = toy_run(2)
    module = ToyModule()
    quiet_trainer(2, fed).fit(module, datamodule=toy_data())
    assert len(fed.result.history) == 2
    assert _same(module, toy_run(2)[2])


def test_another_module_is_refused_in_the_middle_of_a_run() -> None:
    _, trainer, _ = toy_run(1)
    trainer.fit_loop.max_epochs = 2
    other = ToyModule()
    with pytest.raises((ValueError, MisconfigurationException), match="another module"):
        trainer.fit(other, datamodule=toy_data())
    assert _same(other, ToyModule())


def test_another_federation_is_refused_in_the_middle_of_a_run() -> None:
    _, trainer, module = toy_run(1)
    trainer.fit_loop.max_epochs = 2
    with pytest.raises(ValueError, match="federation"):
        trainer.fit(module, datamodule=toy_data(clients=5))


def test_the_module_holds_the_result_in_train_mode() -> None:
    fed, _, module = toy_run(2)
    arm = fed.arms[0]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(module.parameters(), arm.weights, strict=True))
    assert module.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in module.parameters())
    assert "log" not in vars(module)


def test_no_rounds_leave_the_module_as_it_was() -> None:
    fed, trainer, module = toy_run(0)
    assert _same(module, ToyModule())
    assert (fed.result.ledger["rounds"], trainer.current_epoch) == (0, 0)


class Predicting(ToyModule):
    """Predicts labels."""

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self(batch[0]).argmax(1)  # type: ignore[no-any-return]


def test_validate_test_and_predict_take_the_pool() -> None:
    trainer, module, data = quiet_trainer(3, FederatedLoop(cohort=3, executor="sequential")), Predicting(), toy_data()
    trainer.fit(module, datamodule=data)
    x, y = toy_tensors(240)
    module.requires_grad_(False)
    for split, prefix, run in (("val", "val", trainer.validate), ("test", "test", trainer.test)):
        (metrics,) = run(module, datamodule=data, verbose=False)
        rows = torch.from_numpy(data.order(split))
        expected = torch.nn.functional.cross_entropy(module(x[rows]), y[rows])
        assert metrics[f"{prefix}_loss"] == pytest.approx(float(expected), rel=1e-5)
    predicted = torch.cat(trainer.predict(module, datamodule=data))
    assert torch.equal(predicted, module(x[torch.from_numpy(data.order("test"))]).argmax(1))


def test_fit_goes_on_after_a_test_in_between() -> None:
    _, trainer, module = toy_run(2)
    trainer.test(module, datamodule=toy_data(), verbose=False)
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, datamodule=toy_data())
    assert _same(module, toy_run(4)[2])


def test_the_result_can_be_tested_per_client() -> None:
    fed, trainer, module = toy_run(3)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    found = fed.evaluate(trainer, module, toy_data(), split="test")
    assert set(found) == {"global", "personalized"}
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
