"""Batches of any form, hooks of modules and data modules, and maps that do not fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from lightning.pytorch import LightningDataModule
from torch import Tensor

from lightning_fedhpo.feature_maps import FeatureMapWeights
from lightning_fedhpo.testing import ToyModule
from tests.feature_maps.map_runs import MAPS, TRAIN, VALID, X, Y, fitted
from tests.fits import same


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@pytest.mark.parametrize(
    ("pack", "key"),
    [(lambda x, y: {"x": x, "y": y}, "x"), (lambda x, y: (x, y), 0), (lambda x, y: [y, x], 1), (Pair, 0)],
)
def test_batches_of_any_form(pack: Any, key: Any) -> None:
    class Unpacks(ToyModule):
        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            return pack(*batch)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return super().training_step(self.parts(batch), batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            super().validation_step(self.parts(batch), batch_idx)

        def parts(self, batch: Any) -> Any:
            expected = pack(X, Y)
            assert type(batch) is type(expected)
            x, y = batch.values() if isinstance(batch, dict) else batch
            return (x, y) if x.ndim == 2 else (y, x)

    weights, expected = FeatureMapWeights(MAPS, key=key), FeatureMapWeights(MAPS)
    _, module = fitted(weights, module=Unpacks())
    assert same(module, fitted(expected)[1]) and weights.history == expected.history


class Doubling(LightningDataModule):
    """Doubles inputs in its own hook."""

    def train_dataloader(self) -> Any:
        return TRAIN

    def val_dataloader(self) -> Any:
        return VALID

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return [2 * batch[0], batch[1]]


def test_maps_come_after_the_hook_of_a_data_module() -> None:
    doubled = FeatureMapWeights({name: lambda x, one=one: one(2 * x) for name, one in MAPS.items()})
    weights, data = FeatureMapWeights(MAPS), Doubling()
    _, module = fitted(weights, data=data)
    assert same(module, fitted(doubled)[1]) and weights.history == doubled.history
    assert "on_after_batch_transfer" not in vars(data)


@pytest.mark.parametrize(
    ("maps", "options", "rule"),
    [
        ({"cut": lambda x: x[:, :4]}, {}, r"one shape and type: .*\(\(4,\), torch.float32\)"),
        ({"double": Tensor.double}, {}, r"one shape and type: .*\(\(6,\), torch.float64\)"),
        (
            {"mean": lambda x: x.mean(0)},
            {},
            r"as many examples as it gets: 'mean' got shape .*, 6\) and returned .*\(6,\)",
        ),
        ({"log": Tensor.log}, {}, "maps must return numbers: 'log' returns nan or infinity for finite inputs"),
        ({"list": Tensor.tolist}, {}, "'list' got shape .* and returned list"),
        ({}, {"monitor": "val_los"}, "among .* returns: val_loss, val_acc. .*Did you mean 'val_loss'"),
        ({}, {"key": "x"}, "`key` must name the inputs in a batch, got 'x': there are 0, 1"),
    ],
)
def test_maps_that_do_not_fit_are_refused(maps: Any, options: Any, rule: str) -> None:
    module = ToyModule()
    with pytest.raises(ValueError, match=rule):
        fitted(FeatureMapWeights(MAPS | maps, **options), module=module, num_sanity_val_steps=1)
    assert "on_after_batch_transfer" not in vars(module)
