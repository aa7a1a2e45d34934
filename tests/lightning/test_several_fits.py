"""One Trainer, several calls: ``fit`` goes on where it was, and everything else works as always."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_fedhpo.testing import ToyModule, toy_data, toy_run, toy_tensors
from tests.fits import fit, same


def test_a_new_trainer_is_a_new_run() -> None:
    fed, _, first = toy_run(2)
    module = fit(2, fed=fed)[2]
    assert len(fed.result.history) == 2
    assert same(module, first)


def test_another_module_or_federation_is_refused_in_the_middle_of_a_run() -> None:
    _, trainer, module = toy_run(1)
    trainer.fit_loop.max_epochs = 2
    other = ToyModule()
    with pytest.raises((ValueError, MisconfigurationException), match="another module"):
        trainer.fit(other, datamodule=toy_data())
    assert same(other, ToyModule())
    with pytest.raises(ValueError, match="federation"):
        trainer.fit(module, datamodule=toy_data(clients=5))


def test_the_module_holds_the_result_in_train_mode_and_can_be_tested_per_client() -> None:
    fed, trainer, module = toy_run(2)
    assert all(torch.equal(*pair) for pair in zip(module.parameters(), fed.arms[0].weights, strict=True))
    assert module.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in module.parameters())
    assert "log" not in vars(module)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert set(fed.evaluate(trainer, module, toy_data(), split="test")) == {"global", "personalized"}
    assert same(module, before)


def test_no_rounds_leave_the_module_as_it_was() -> None:
    fed, trainer, module = toy_run(0)
    assert same(module, ToyModule())
    assert (fed.result.ledger["rounds"], trainer.current_epoch) == (0, 0)


class Predicting(ToyModule):
    """Predicts labels."""

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self(batch[0]).argmax(1)  # type: ignore[no-any-return]


def test_validate_test_and_predict_take_the_pool_and_fit_goes_on_after_them() -> None:
    data = toy_data()
    _, trainer, module = fit(2, module=Predicting(), data=data)
    x, y = toy_tensors(240)
    for split, prefix, run in (("val", "val", trainer.validate), ("test", "test", trainer.test)):
        (metrics,) = run(module, datamodule=data, verbose=False)
        rows = torch.from_numpy(data.order(split))
        expected = torch.nn.functional.cross_entropy(module(x[rows]), y[rows])
        assert metrics[f"{prefix}_loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    predicted = torch.cat(trainer.predict(module, datamodule=data))
    assert torch.equal(predicted, module(x[torch.from_numpy(data.order("test"))]).argmax(1))
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, datamodule=data)
    assert same(module, toy_run(4)[2])
