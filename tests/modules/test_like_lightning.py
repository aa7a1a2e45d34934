"""One client that owns everything, one round, FedAvg: weights and scores are those of Lightning's own training."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn.parameter import is_lazy

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import seeding
from lightning_fedhpo._lightning.modules import STEP_HOOKS
from lightning_fedhpo.client.module_state import named_state
from lightning_fedhpo.testing import quiet_trainer
from lightning_fedhpo.types import Job, RoundContext
from tests.modules.reference import SEED, federated, federation, plain
from tests.modules.zoo import CASES
from tests.modules.zoo.base import Case, Plain

# Lightning's own remarks about such modules, which a federated run passes on.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the schedule .* needs"),
    pytest.mark.filterwarnings("ignore:Found .* module.* in eval mode at the start of training"),
    pytest.mark.filterwarnings("ignore:You have overridden `on_.*_batch_transfer` in `LightningModule`"),
    pytest.mark.filterwarnings("ignore:`training_step` returned `None`"),
]
STATEFUL = ["lookahead", "manual", "gan", "plateau", "epoch_hooks", "draws", "batch_norm", "memory", "cache"]
STATEFUL += ["frozen_backbone", "own_metric", "metrics_watched", "adagrad", "tensor_rate"]


def built(module, data):
    """Build lazy layers as a run does: by a validation batch, under their own generator."""
    if any(is_lazy(parameter) for parameter in module.parameters()):
        with seeding.preserved(), torch.no_grad():
            seeding.seed_user_code(seeding.key(SEED, seeding.MODEL))
            module.eval()
            module(data.examples(0, "val").slice(0, 4)[0])
            module.train()
    return module


@pytest.mark.parametrize("name", CASES)
def test_a_federation_of_one_trains_and_validates_as_lightning_does(name):
    case = CASES[name]
    data = federation(case)
    ours, theirs = case.build(), built(case.build(), data)
    fed, trainer = federated(case, ours, data)
    plain(case, theirs, data)
    start = {key: tensor.clone() for key, tensor, _ in named_state(built(case.build(), data))}
    moved = 0
    after = {key: tensor for key, tensor, _ in named_state(theirs)}
    for key, tensor, _ in named_state(ours):
        expected = after.pop(key)
        if name == "cache" and key == "growing":
            continue  # a client's cache is put back
        torch.testing.assert_close(
            tensor, expected, atol=case.tolerance, rtol=case.tolerance, msg=lambda text, key=key: f"{key}: {text}"
        )
        moved += key in start and not torch.equal(tensor.to(start[key].dtype), start[key])
    assert not after or (name == "cache" and set(after) == {"grid"})
    assert moved or name == "configured_model"
    if case.bare is not None:
        assert fed.session.bench.local.bare == case.bare
    scores = fed.evaluate(trainer, ours, data, split="val")["global"]
    assert fed.result.jobs[-1]["score_after"] == pytest.approx(scores["val_loss"], rel=1e-6)
    if name == "returned":
        losses = [(len(y), ours.loss((x, y)).item()) for x, y in data.val_dataloader()]
        expected = {"val_loss": sum(n * x for n, x in losses) / sum(n for n, _ in losses), "batch": scores["batch"]}
    else:
        expected = validated(case, ours, data)
    steps = {key for key in scores if key.endswith(("_step", "/step_only"))}  # Lightning keeps those to itself
    assert {key: value for key, value in scores.items() if key not in steps} == pytest.approx(expected, rel=1e-5)


def validated(case, module, data):
    """Return what Lightning's own validation logs on the client's examples."""
    trainer = quiet_trainer(1, **case.trainer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.validate(module, dataloaders=data.val_dataloader(), verbose=False)
    return {key: float(value) for key, value in trainer.callback_metrics.items()}


def outcome(bench, arm, client):
    """Run one job and return copies of everything that comes out of it."""
    result = bench.run_job(Job(1, arm.index, client, {}), arm, RoundContext(1, SEED, False))
    tensors = [tensor.clone() for tensor in (*result.weights, *result.buffers)]
    tensors += [tensor.clone() for _, tensor, _ in named_state(bench.local.module)]
    return tensors, dict(result.after), dict(result.train), result.local_steps


@pytest.mark.parametrize("name", STATEFUL)
def test_a_client_s_result_does_not_depend_on_who_trained_before_it(name):
    case = CASES[name]
    module = case.build()
    fed, trainer = federated(case, module, federation(case, clients=3))
    bench, arm = fed.session.bench, fed.arms[0]
    with seeding.preserved(), private.fitting(trainer, module):
        first, other, _, second = (outcome(bench, arm, client) for client in (2, 0, 1, 2))
    assert all(torch.equal(one, another) for one, another in zip(first[0], second[0], strict=True))
    assert first[1:] == second[1:]
    assert first[1] != other[1], "the test could tell clients apart"


@pytest.mark.parametrize("hook", STEP_HOOKS)
def test_a_hook_inside_a_step_is_left_to_lightnings_own_loops(hook):
    kind = type("Hooked", (Plain,), {hook: lambda *given, **options: getattr(Plain, hook)(*given, **options)})
    fed, _ = federated(Case(kind), Case(kind).build(), federation(Case(kind)))
    assert fed.session.bench.local.lightning_features == [f"`{hook}`"]
