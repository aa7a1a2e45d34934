"""Lightning's own demonstration modules, none of which was written for a federation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel, DemoModel, ManualOptimBoringModel, RandomDataset
from lightning.pytorch.demos.lstm import LightningLSTM
from lightning.pytorch.demos.transformer import LightningTransformer, WikiText2

from lightning_fedhpo import FederatedData, Iid
from lightning_fedhpo.client.module_state import named_state
from tests.modules.reference import check_same, federated, plain
from tests.modules.zoo.base import Case

# Lightning's remark about a module without `validation_step`, before any callback has a say.
pytestmark = pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")

WORDS = ("a", "bee", "sees", "the", "tall", "green", "tree", ".")


def noise(clients=1):
    torch.manual_seed(0)
    return FederatedData(RandomDataset(32, 24), Iid(clients), fractions=(0.8, 0.2, 0.0), batch_size=5)


def text(clients=1):
    """Return the demos' text data set, of a text that lies where it would be downloaded to."""
    return FederatedData(WikiText2(block_size=6), Iid(clients), fractions=(1.0, 0.0, 0.0), batch_size=2)


@pytest.fixture(autouse=True)
def written_text(tmp_path, monkeypatch):
    """Put a generated text where the text demos look for theirs, so that nothing is downloaded."""
    monkeypatch.chdir(tmp_path)
    order = torch.randint(len(WORDS), (54,), generator=torch.Generator().manual_seed(1)).tolist()
    Path("data").mkdir()
    Path("data/wikitext-2.txt").write_text(" ".join(WORDS[place] for place in order))


CASES = {
    BoringModel: (Case(BoringModel, data=noise), "x"),
    ManualOptimBoringModel: (Case(ManualOptimBoringModel, data=noise), "x"),
    DemoModel: (Case(DemoModel, data=noise), None),
    LightningTransformer: (Case(partial(LightningTransformer, vocab_size=9), data=text), None),
    LightningLSTM: (Case(partial(LightningLSTM, vocab_size=9), data=text, epochs=1), None),
}
"""Every module, and the score it logs."""


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_a_federation_of_one_trains_a_demo_as_lightning_does(kind):
    case, monitor = CASES[kind]
    ours, theirs = case.build(), case.build()
    start = [tensor.clone() for _, tensor, _ in named_state(ours)]
    data = case.data()
    federated(case, ours, data, monitor=monitor)
    plain(case, theirs, data)
    check_same(ours, theirs, 2e-6)
    assert any(not torch.equal(tensor, before) for (_, tensor, _), before in zip(named_state(ours), start, strict=True))


def test_a_demo_without_validation_is_refused_where_scores_are_wanted():
    case, _ = CASES[DemoModel]
    with pytest.raises(Exception, match="read from `validation_step`, which DemoModel does not have"):
        federated(case, case.build(), case.data())
