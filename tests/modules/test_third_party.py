"""Modules of published packages, as they come: a few federated rounds each.

None of the packages is needed for anything else; `make test-thirdparty` installs them.
"""

from __future__ import annotations

import copy
import math
from functools import partial

import lightning
import numpy as np
import pytest
import torch

from lightning_fedhpo import FederatedData, FederatedLoop, Fixed, Iid, Natural
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import quiet_trainer
from tests.modules.reference import check_same, federated, plain
from tests.modules.zoo.base import Case
from tests.test_readme import QUIET, blocks

# What the packages' own code and Lightning say about them is theirs.
pytestmark = [pytest.mark.thirdparty, pytest.mark.filterwarnings("default")]

REASON = "a third-party package: make test-thirdparty installs it"


def trained(module, data, monitor, **client):
    """Train a module in a federation, every client of it in every round."""
    fed = FederatedLoop(cohort=len(data), monitor=monitor, epochs=2, score_before=True, seed=1)
    trainer = quiet_trainer(4, fed, Fixed(client=client))
    trainer.fit(module, datamodule=data)
    return fed, trainer


def check(make, data, *, lr, monitor="val_loss", name="lr"):
    """Check a module: as Lightning trains it where one client has all; it learns, by its own rate; it is evaluated."""
    case, ours, theirs, module = Case(make, validates=True), make(), make(), make()
    federated(case, ours, data(1))
    plain(case, theirs, data(1))
    check_same(ours, theirs, 1e-5)
    start = [parameter.detach().clone() for parameter in module.parameters()]
    fed, trainer = trained(module, data(), monitor, **{name: lr})
    assert any(not torch.equal(one, other) for one, other in zip(start, module.parameters(), strict=True))
    before = [row["score_before"] for row in fed.result.jobs if row["round"] == 0]
    after = [row["score_after"] for row in fed.result.jobs if row["round"] == 3]
    assert all(math.isfinite(score) for score in (*before, *after))
    assert sum(after) / len(after) < sum(before) / len(before)
    assert set(fed.result.jobs[name]) == {lr}
    evaluation = fed.evaluate(trainer, module, fed.data, split="val")
    assert math.isfinite(evaluation["global"][monitor])
    assert evaluation["global"][monitor] != evaluation["personalized"][monitor]
    other = make()
    trained(other, data(), monitor, **{name: lr / 10})
    assert any(not torch.equal(one, same) for one, same in zip(other.parameters(), module.parameters(), strict=True))


def waves(series, length):
    """Return noisy sines of different phases."""
    generator = torch.Generator().manual_seed(0)
    phase = 6 * torch.rand(series, 1, generator=generator)
    noise = 0.1 * torch.randn(series, length, generator=generator)
    return torch.sin(torch.arange(length) / 3 + phase) + 2 + noise


def windows(count, past, future):
    """Return windows of series as GluonTS names their parts, for networks with one static and no dynamic features."""
    values = waves(count, past + future)
    return {
        "past_target": values[:, :past],
        "past_observed_values": torch.ones(count, past),
        "future_target": values[:, past:],
        "future_observed_values": torch.ones(count, future),
        "feat_static_cat": torch.zeros(count, 1, dtype=torch.long),
        "feat_static_real": torch.zeros(count, 1),
        "past_time_feat": torch.arange(past).expand(count, past)[..., None] / past,
        "future_time_feat": torch.arange(future).expand(count, future)[..., None] / past + 1,
    }


def test_gluonts_deep_ar_whose_schedule_watches_validation():
    module = pytest.importorskip("gluonts.torch.model.deepar.lightning_module", reason=REASON)
    options = {"freq": "h", "context_length": 8, "prediction_length": 4, "lags_seq": [1, 2], "hidden_size": 8}
    sizes = {"num_feat_dynamic_real": 1, "num_feat_static_real": 1, "num_feat_static_cat": 1, "cardinality": [1]}

    def make():
        torch.manual_seed(0)
        return module.DeepARLightningModule({**options, **sizes}, patience=0)

    def data(clients=3):
        return FederatedData(windows(48, 10, 4), Iid(clients), fractions=(0.8, 0.2, 0.0), batch_size=8)

    check(make, data, lr=0.01)


@pytest.mark.parametrize("name", ["TemporalFusionTransformer", "NBeats"])
def test_pytorch_forecasting(name):
    forecasting = pytest.importorskip("pytorch_forecasting", reason=REASON)
    pandas = pytest.importorskip("pandas", reason=REASON)
    values = waves(4, 40).numpy()
    series, steps = np.indices(values.shape)
    frame = {"value": values.ravel(), "time": steps.ravel(), "series": series.ravel().astype(str)}
    lengths = {"max_encoder_length": 8, "min_encoder_length": 8, "max_prediction_length": 3, "min_prediction_length": 3}
    dataset = forecasting.TimeSeriesDataSet(
        pandas.DataFrame(frame).astype({"value": "float32"}),
        time_idx="time",
        target="value",
        group_ids=["series"],
        time_varying_unknown_reals=["value"],
        target_normalizer=forecasting.EncoderNormalizer() if name != "NBeats" else "auto",
        **lengths,
    )
    small = {
        "TemporalFusionTransformer": {"hidden_size": 4, "attention_head_size": 1, "dropout": 0.1},
        "NBeats": {"widths": [8, 8], "backcast_loss_ratio": 0.1},
    }[name]

    def make():
        torch.manual_seed(0)
        return getattr(forecasting, name).from_dataset(dataset, learning_rate=0.01, **small)

    def data(clients=3):
        owners = np.arange(len(dataset)) % clients
        return FederatedData(
            dataset, Natural(owners), fractions=(0.8, 0.2, 0.0), batch_size=16, collate_fn=dataset._collate_fn
        )

    check(make, data, lr=0.02)


def test_chemprop_message_passing():
    chemprop = pytest.importorskip("chemprop", reason=REASON)
    atoms = ("C", "N", "O")
    smiles = ["C" * (1 + i % 5) + atoms[i % 3] + "C" * (i % 4) for i in range(48)]
    points = [chemprop.data.MoleculeDatapoint.from_smi(smi, [float(smi.count("C"))]) for smi in smiles]
    dataset = chemprop.data.MoleculeDataset(points, chemprop.featurizers.SimpleMoleculeMolGraphFeaturizer())

    def make():
        torch.manual_seed(0)
        passing = chemprop.nn.BondMessagePassing(d_h=16, depth=2)
        head = chemprop.nn.RegressionFFN(input_dim=16, hidden_dim=16)
        metrics = [chemprop.nn.metrics.MAE()]
        return chemprop.models.MPNN(passing, chemprop.nn.MeanAggregation(), head, True, metrics, warmup_epochs=1)

    def data(clients=3):
        owners = np.arange(len(dataset)) % clients
        collate = chemprop.data.collate_batch
        return FederatedData(dataset, Natural(owners), fractions=(0.75, 0.25, 0.0), batch_size=6, collate_fn=collate)

    # Its schedule climbs to ten times the base.
    check(make, data, lr=0.001)


def test_the_page_on_peft_and_its_module_one_after_another_and_side_by_side(monkeypatch):
    """With dropout the executors drop different elements, so they are compared without."""
    for package in ("peft", "transformers"):
        pytest.importorskip(package, reason=REASON)
    monkeypatch.setattr(lightning, "Trainer", partial(lightning.Trainer, **QUIET))
    names = {}
    exec(blocks("how-to/peft.md")[0], names)
    fed, network = names["fed"], names["network"]
    assert names["trained"] == 1123 and fed.result.ledger["bytes_up"] == fed.result.ledger["bytes_down"] == 224_600
    assert sum(weight.numel() for weight in network.parameters()) == 38_758
    assert sum(fed.result.history["score"][5:]) / 5 > 0.45, "three topics: a guess has a third"
    assert "side by side" in fed.choice
    found = []
    for executor in ("sequential", Vectorized(compile=False)):
        module = names["Tuned"](copy.deepcopy(network))
        fed = FederatedLoop(cohort=5, epochs=2, executor=executor, seed=1)
        tuner = Fixed(client={"lr": 0.003, "dropout": 0.0})
        quiet_trainer(2, fed, tuner).fit(module, datamodule=names["data"])
        assert ("side by side" in fed.choice) == (executor != "sequential")
        found.append([weight.detach() for weight in fed.arms[0].weights])
    start = [weight.detach() for weight in network.parameters() if weight.requires_grad]
    moved = max(float((one - old).abs().max()) for one, old in zip(found[0], start, strict=True))
    apart = max(float((one - other).abs().max()) for one, other in zip(*found, strict=True))
    assert apart < 1e-3 * moved
