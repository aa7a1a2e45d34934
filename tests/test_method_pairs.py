"""Every tuner and search with every federated method: runs of two rounds, or of as many as the search takes."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_fedhpo import FederatedLoop, RandomSearch, SearchSpace
from lightning_fedhpo.searches import Search
from lightning_fedhpo.testing import ToyModule, quiet_trainer, toy_data, toy_instances, toy_tensors
from lightning_fedhpo.testing.contracts import toy_space
from tests.test_contracts import ALGORITHMS, SEARCHES, TUNERS

pytestmark = [
    pytest.mark.filterwarnings("ignore:Scaffold takes a local step"),
    pytest.mark.filterwarnings("ignore:FedPop"),
]


def space_of(server: Any) -> SearchSpace:
    """The toy space without what the method's server does not have."""
    space = toy_space()
    return SearchSpace(
        client=dict(space.client), server={name: one for name, one in space.server.items() if name in server}
    )


CHOOSERS = [*TUNERS, *SEARCHES]
PAIRS = [
    pytest.param(method, chooser, marks=[] if row % len(CHOOSERS) == column else [pytest.mark.slow])
    for row, method in enumerate(ALGORITHMS)
    for column, chooser in enumerate(CHOOSERS)
]
"""All; those that are not slow have every method and every tuner and search once at least."""


@pytest.mark.parametrize(("method", "chooser"), PAIRS)
def test_two_rounds(method: str, chooser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = ALGORITHMS[method]()
    space = space_of(algorithm.server)
    monkeypatch.setattr(toy_instances, "toy_space", lambda: space)
    per_client = RandomSearch(space, budget=8, max_rounds=4, per_client=True)
    subject = per_client if chooser == "per-client" else {**TUNERS, **SEARCHES}[chooser]()
    everyone = getattr(subject, "needs_everyone", False)
    more = {"server_data": toy_tensors(30)} if everyone else {}
    fed = FederatedLoop(algorithm, 8 if everyone else 3, executor="sequential", **more)
    rounds, module = max(2, subject.rounds) if isinstance(subject, Search) else 2, ToyModule()
    quiet_trainer(rounds, fed, subject).fit(module, datamodule=toy_data())
    start = dict(ToyModule().named_parameters())
    assert all(bool(one.isfinite().all()) for one in module.parameters())
    assert any(not bool((one == start[name]).all()) for name, one in module.named_parameters())
    assert len({row["round"] for row in fed.result.history}) >= 2 and not any(fed.result.history["dropped"])
