"""Which losses are told to be means over their examples from their operations, at any weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
import torchmetrics
from torch import Tensor, nn
from torch.nn import functional

from lightning_fedhpo.executors.vectorized.means import check_means
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError

DRAW = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(3, 6, generator=DRAW)
INPUTS = torch.randn(50, 6, generator=DRAW)
LABELS = torch.arange(50) % 3
NORM, CONVOLUTION = nn.GroupNorm(2, 6), nn.Conv1d(1, 4, 3)

Loss = Callable[[Tensor, Tensor], Tensor]
entropy = functional.cross_entropy
each = partial(functional.cross_entropy, reduction="none")
accuracy = partial(torchmetrics.functional.accuracy, task="multiclass", num_classes=3)


def out(x: Tensor) -> Tensor:
    return x @ WEIGHT.t()


def hit(x: Tensor, y: Tensor) -> Tensor:
    return out(x).argmax(1) == y


def plain(x: Tensor, y: Tensor) -> Tensor:
    return entropy(out(x), y)


def into_a_buffer(x: Tensor, y: Tensor) -> Tensor:
    kept = torch.zeros(2)
    kept[0] = plain(x, y)
    return kept.sum()


def distant_through_a_buffer(x: Tensor, y: Tensor) -> Tensor:
    kept = torch.zeros(2)
    kept[0].copy_(plain(x, y) - 1)
    return kept.abs().sum()


def added_in_place(x: Tensor, y: Tensor) -> Tensor:
    total = plain(x, y)
    total += functional.mse_loss(out(x)[:, 0], y.float())
    return total.mul_(2)


def sure(x: Tensor, y: Tensor) -> Tensor:
    mask = (out(x).softmax(1).amax(1) > 0.999).float()
    return (each(out(x), y) * mask).sum() / mask.sum().clamp(min=1)


def scattered(x: Tensor, y: Tensor) -> Tensor:
    return (torch.zeros(len(y), 3).scatter_(1, y[:, None], 1.0) * out(x)).mean()


def without(label: int, x: Tensor, y: Tensor) -> Tensor:
    return (each(out(x), y) * (y != label)).sum() / (y != label).sum()


def relabelled_in_place(x: Tensor, y: Tensor) -> Tensor:
    y[y == 2] = -100
    return entropy(out(x), y)


def changed_count(x: Tensor, y: Tensor) -> Tensor:
    right, wrong = hit(x, y).sum(), (out(x).argmax(1) != y).sum()
    right.mul_(2)
    return right / (right + wrong)


def clipped(x: Tensor, y: Tensor) -> Tensor:
    WEIGHT.t()[0].clamp_(-99, 99)
    return plain(x, y)


MEANS: dict[str, Loss] = {
    "cross-entropy": plain,
    "smoothed labels": lambda x, y: entropy(out(x), y, label_smoothing=0.1),
    "probabilities": lambda x, y: entropy(out(x), functional.one_hot(y, 3).float()),
    "by class": lambda x, y: functional.binary_cross_entropy_with_logits(
        out(x), functional.one_hot(y, 3).float(), pos_weight=torch.tensor([1.0, 2, 3])
    ),
    "a sum over the batch's size": lambda x, y: entropy(out(x), y, reduction="sum") / len(y),
    "accuracy": lambda x, y: hit(x, y).float().mean(),
    "accuracy by counting": lambda x, y: hit(x, y).sum() / len(y),
    "torchmetrics' accuracy": lambda x, y: accuracy(out(x), y),
    "torchmetrics' squared error": lambda x, y: torchmetrics.functional.mean_squared_error(out(x)[:, 0], y.float()),
    "a regulariser": lambda x, y: functional.l1_loss(out(x)[:, 0], y.float()) + 0.1 * WEIGHT.norm() + 1,
    "added in place": added_in_place,
    "divergence": lambda x, y: functional.kl_div(out(x).log_softmax(1), (2 * out(x)).softmax(1), reduction="batchmean"),
    "labels from 1": lambda x, y: entropy(torch.cat([out(x)] * 2, 1), y + 1),
    "labels turned": lambda x, y: entropy(out(x), y.unsqueeze(1).squeeze(1).to(torch.int64)),
    "layers": lambda x, y: NORM(x).abs().mean() + CONVOLUTION(x[:, None]).abs().mean(),
    "masked, over all": lambda x, y: (each(out(x), y) * (y == 1)).mean(),
    "nothing is masked": partial(without, 7),
    "never": lambda x, y: plain(x, y) * (y > 99).any(),
    "by index": lambda x, y: -out(x).log_softmax(1)[torch.arange(len(y)), y].mean(),
    "gathered": lambda x, y: -out(x).log_softmax(1).gather(1, y[:, None]).mean(),
    "scattered": scattered,
    "into a buffer": into_a_buffer,
    "in another order": lambda x, y: out(x[torch.arange(len(y)).flip(0)]).square().mean(),
    "triplets": lambda x, y: functional.triplet_margin_loss(x, 2 * x, 3 * x),
    "cosine": lambda x, y: 1 - functional.cosine_similarity(x, x + 1).mean(),
    "sequences": lambda x, y: entropy(out(x)[:, :, None].expand(-1, -1, 4), y[:, None].expand(-1, 4)),
    "sequences in a row": lambda x, y: entropy(out(x).repeat_interleave(2, 0), y[:, None].expand(-1, 2).reshape(-1)),
}

OTHERS: dict[str, tuple[str, Loss]] = {
    "flooding": ("`abs` follows", lambda x, y: (plain(x, y) - 0.3).abs() + 0.3),
    "cut off": ("`clamp` follows", lambda x, y: plain(x, y).clamp(min=1e-9)),
    "cut off in place": ("`clamp` follows", lambda x, y: plain(x, y).clamp_(min=1e-9)),
    "through a buffer": ("`abs` follows", distant_through_a_buffer),
    "only the sure": ("`clamp` follows", sure),
    "some are masked": ("`div` follows", partial(without, 1)),
    "weighted classes": ("classes are weighed", lambda x, y: entropy(out(x), y, weight=torch.ones(3))),
    "a label left out": ("leaves labels out", lambda x, y: entropy(out(x), y, ignore_index=2)),
    "a label left out, from 1": ("leaves labels out", lambda x, y: entropy(out(x), y - 1, ignore_index=-1)),
    "relabelled in place": ("cannot be seen", relabelled_in_place),
    "labels by the weights": ("cannot be seen", lambda x, y: entropy(out(x), out(x).argmax(1))),
    "the batch's entropy": ("follows", lambda x, y: plain(x, y) + 1e-9 * out(x).softmax(1).mean(0).log().sum()),
    "perplexity": ("`exp` follows", lambda x, y: plain(x, y).exp()),
    "product": ("`mul` follows", lambda x, y: plain(x, y) * hit(x, y).float().mean()),
    "inverse": ("follows", lambda x, y: 1 / plain(x, y)),
    "by a condition": ("follows", lambda x, y: torch.where(plain(x, y) > 1e-9, plain(x, y), torch.zeros(()))),
    "centred": ("`sub` follows", lambda x, y: (x - x.mean(0)).abs().mean()),
    "to a whole number": ("`_to_copy` follows", lambda x, y: plain(x, y).long().float()),
    "ratio of counts": ("`div` follows", lambda x, y: hit(x, y).sum() / (hit(x, y).sum() + (y == 1).sum())),
    "a count changed": ("`div` follows", changed_count),
    "writes to weights": ("writes to its weights", clipped),
    "contrasts": ("`mm` brings", lambda x, y: plain(x, y) + 1e-9 * entropy(x @ x.t(), torch.arange(len(y)))),
    "softmax over the batch": (
        "`_softmax` brings",
        lambda x, y: plain(x, y) + 1e-9 * out(x).softmax(0).square().mean(),
    ),
    "neighbours": ("`flip` brings", lambda x, y: functional.mse_loss(x, 0.9 * x + 1e-9 * x.flip(0))),
    "shifted, not yet counted": (
        "`sub` brings",
        lambda x, y: plain(x, y) + 0.0 * (x - x[torch.arange(len(y)) - 1]).abs().mean(),
    ),
    "mixed by a matrix": (
        "brings",
        lambda x, y: plain(x, y) + 0.0 * ((torch.eye(len(y)) + 0.5) @ x).abs().mean(),
    ),
    "mixed by a convolution": (
        "`convolution` brings",
        lambda x, y: plain(x, y) + 0.0 * functional.conv1d(x.t()[:, None], torch.ones(1, 1, 3), padding=1).abs().mean(),
    ),
    "by how often words come": (
        "`embedding` brings",
        lambda x, y: functional.embedding(y, WEIGHT, scale_grad_by_freq=True).abs().mean(),
    ),
    "all but the first": ("`slice` brings", lambda x, y: (x[1:] - x[:-1]).abs().mean()),
    "batch norm": ("batch_norm` brings", lambda x, y: functional.batch_norm(x, None, None, training=True).abs().mean()),
    "the hardest": ("makes something else", lambda x, y: each(out(x), y).topk(2)[0].mean()),
    "the largest": ("makes something else", lambda x, y: each(out(x), y).max()),
    "the first": ("makes something else", lambda x, y: each(out(x), y)[0]),
    "variance": ("makes something else", lambda x, y: x.var()),
    "by size": ("batches of all sizes", lambda x, y: plain(x, y) if len(y) < 6 else plain(x, y) * 2),
}


def look(loss: Loss, columns: Sequence[Tensor]) -> None:
    check_means(lambda batch: ({"its loss": loss(*batch)}, []), columns, [WEIGHT])


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_is_told(name: str) -> None:
    look(MEANS[name], [INPUTS, LABELS])
    # They are: the mean of a batch is that of its halves.
    halves = [MEANS[name](INPUTS[half].clone(), LABELS[half].clone()) for half in (slice(0, 20), slice(20, 40))]
    whole = MEANS[name](INPUTS[:40].clone(), LABELS[:40].clone())
    torch.testing.assert_close(torch.stack(halves).mean(), whole, check_dtype=False)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_mean_is_told_with_the_operation_that_makes_it_none(name: str) -> None:
    reason, loss = OTHERS[name]
    with pytest.raises(CannotBatchError, match=reason):
        look(loss, [INPUTS, LABELS])


def test_labels_that_are_left_out_are_looked_for_in_all_of_the_data() -> None:
    labels = LABELS.clone()
    labels[49] = -100
    with pytest.raises(CannotBatchError, match="leaves labels out"):
        look(plain, [INPUTS, labels])


def test_bytes_are_no_label_that_is_left_out() -> None:
    bytes_of_labels = torch.full((50,), 156, dtype=torch.uint8)  # -100 by eight bits
    look(lambda x, y: functional.nll_loss(torch.cat([out(x)] * 60, 1), y), [INPUTS, bytes_of_labels])


@pytest.mark.parametrize("count", [2, 5, 7, 50])
def test_examples_that_meet_are_seen_however_many_there_are(count: int) -> None:
    name, loss = OTHERS["shifted, not yet counted"]
    with pytest.raises(CannotBatchError, match="brings"):
        look(loss, [INPUTS[:count], LABELS[:count]])


@pytest.mark.parametrize(
    ("dropped", "is_fine"),
    [
        (lambda x: WEIGHT, False),
        (lambda x: torch.ones(1, 6), False),
        (lambda x: x, True),
        (lambda x: x @ WEIGHT.t(), True),
        (lambda x: torch.ones_like(x), True),
    ],
)
def test_only_what_is_an_examples_own_may_be_dropped_out(dropped: Callable[[Tensor], Tensor], is_fine: bool) -> None:
    def step(batch: Sequence[Tensor]) -> tuple[dict[str, Tensor], list[Tensor]]:
        return {"its loss": plain(*batch)}, [dropped(batch[0])]

    if is_fine:
        check_means(step, [INPUTS, LABELS], [WEIGHT])
        return
    with pytest.raises(CannotBatchError, match="drops out what is no example's own"):
        check_means(step, [INPUTS, LABELS], [WEIGHT])
