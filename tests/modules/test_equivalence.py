"""One client that owns everything, one round, FedAvg: the weights of Lightning's own training, module by module."""

from __future__ import annotations

import warnings

import pytest
import torch
from lightning.pytorch import Trainer
from torch.nn.parameter import is_lazy

from lightning_fedhpo import seeding
from lightning_fedhpo.client.module_state import named_state
from lightning_fedhpo.testing import quiet_trainer
from tests.modules.reference import SEED, federated, federation, plain
from tests.modules.zoo import CASES

# Lightning's own remarks about such modules, which a federated run passes on.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Found .* module.* in eval mode at the start of training"),
    pytest.mark.filterwarnings("ignore:You have overridden `on_.*_batch_transfer` in `LightningModule`"),
    pytest.mark.filterwarnings("ignore:`training_step` returned `None`"),
]


def built(module, data):
    """Build lazy layers as a run does: by a validation batch, under their own generator."""
    if any(is_lazy(parameter) for parameter in module.parameters()):
        with seeding.preserved(), torch.no_grad():
            seeding.seed_user_code(seeding.key(SEED, seeding.MODEL))
            start = [name for name, tensor in module.named_buffers() if tensor is not None]
            module.eval()
            module(data.examples(0, "val").slice(0, 4)[0])
            module.train()
            assert start
    return module


@pytest.mark.parametrize("name", CASES)
def test_a_federation_of_one_trains_as_lightning_does(name):
    case = CASES[name]
    data = federation(case)
    ours, theirs = case.build(), built(case.build(), data)
    fed, _ = federated(case, ours, data)
    plain(case, theirs, data)
    start = {key: tensor.clone() for key, tensor, _ in named_state(built(case.build(), data))}
    moved = 0
    for (key, tensor, _), (_, expected, _) in zip(named_state(ours), named_state(theirs), strict=True):
        torch.testing.assert_close(
            tensor, expected, atol=case.tolerance, rtol=case.tolerance, msg=lambda text, key=key: f"{key}: {text}"
        )
        moved += key in start and not torch.equal(tensor.to(start[key].dtype), start[key])
    assert moved or name == "configured_model"
    if case.bare is not None:
        assert fed.session.sequential.local.bare == case.bare


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_lightning_s_validation(name):
    case = CASES[name]
    data = federation(case)
    module = case.build()
    fed, trainer = federated(case, module, data)
    ours = fed.evaluate(trainer, module, data, split="val")["global"]
    assert fed.result.jobs[-1]["score_after"] == pytest.approx(ours["val_loss"], rel=1e-6)
    if name == "returned":
        losses = [(len(y), module.loss((x, y)).item()) for x, y in data.val_dataloader()]
        expected = {"val_loss": sum(n * loss for n, loss in losses) / sum(n for n, _ in losses), "batch": ours["batch"]}
    else:
        expected = validated(case, module, data)
    steps = {key for key in ours if key.endswith(("_step", "/step_only"))}  # Lightning keeps those to itself
    assert {key: value for key, value in ours.items() if key not in steps} == pytest.approx(expected, rel=1e-5)


def validated(case, module, data):
    """Return what Lightning's own validation logs on the client's examples."""
    trainer: Trainer = quiet_trainer(1, **case.trainer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.validate(module, dataloaders=data.val_dataloader(), verbose=False)
    return {key: float(value) for key, value in trainer.callback_metrics.items()}
