"""With how many threads jobs are computed: by the size of a step, or as the user says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lightning_fedhpo.executors import Auto, Sequential, Vectorized, auto
from lightning_fedhpo.testing import ToyModule
from tests.fits import fit


class Counts(ToyModule):
    """Writes down how many threads its steps have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.seen.append(torch.get_num_threads())
        return super().training_step(batch, batch_idx)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3, "a run leaves torch's number as it was"
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("executor", "operations", "threads", "said"),
    [
        ("sequential", 0.9e9, 1, "on 1 thread, as steps are small"),
        ("auto", 0.9e9, 1, "on 1 thread, as steps are small"),
        ("sequential", 1e9, 3, "on 3 threads"),
        (Sequential(threads=2), 0.9e9, 2, "on 2 threads, as asked for"),
        (Auto(threads=2), 1e9, 2, "on 2 threads, as asked for"),
    ],
)
def test_small_steps_take_one_thread(
    executor: Any, operations: float, threads: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "operations", lambda *arguments: auto.Operations(operations))
    fed, _, module = fit(1, module=Counts(), executor=executor)
    assert module.seen[-1] == threads
    assert fed.choice.endswith(said)


def test_the_trial_before_the_first_round_takes_one_thread() -> None:
    assert fit(1, module=Counts(), executor=Sequential(threads=2))[2].seen[0] == 1


def test_torch_counts_a_matrix_product() -> None:
    """The toy's three products, forward, and backward but for the gradient of the examples."""
    counted: list[auto.Operations] = []
    own = auto.operations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "operations", lambda *arguments: counted.append(own(*arguments)) or counted[-1])
        _, _, module = fit(1)
    sizes = [layer.weight.numel() for layer in module.modules() if isinstance(layer, torch.nn.Linear)]
    batch = counted[0].all / (2 * (2 * sizes[0] + 3 * sum(sizes[1:])))
    assert batch == int(batch) > 0


@pytest.mark.parametrize("threads", [0, 1.5, True])
@pytest.mark.parametrize("kind", [Auto, Sequential, Vectorized])
def test_threads_that_are_none(kind: Any, threads: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="`threads` must be"):
        kind(threads=threads)
