"""Whether a loss ends in a known mean over the batch's examples: ``auto`` runs jobs side by side only then.

Known are torch's losses with ``reduction="mean"``, and ``mean()``. Behind them may come sums, and products with what
does not depend on the batch. Whether examples meet earlier, as in ``softmax(dim=0)``, shows in the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lightning_fedhpo.executors.vectorized.dropout import HashedDropout
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError, ExampleStep, pure_step_guard

EXAMPLES = 8
"""Examples of the batch that is looked at."""

_NAMES = """l1_loss mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div
soft_margin_loss hinge_embedding_loss margin_ranking_loss cosine_embedding_loss triplet_margin_loss multi_margin_loss
multilabel_margin_loss multilabel_soft_margin_loss poisson_nll_loss gaussian_nll_loss"""
_LOSSES = {getattr(functional, name) for name in _NAMES.split()}
_BY_LABEL = {functional.cross_entropy, functional.nll_loss}
"""Means, unless they weigh classes or leave labels out."""
_PRODUCTS = {"mul", "rmul", "imul", "div", "truediv", "true_divide"}
_LINEAR = {"add", "radd", "iadd", "sub", "rsub", "isub", "neg", "positive", "sum", "mean", "stack", *_PRODUCTS}
_LINEAR |= {"reshape", "view", "squeeze", "unsqueeze", "detach", "clone", "float", "double", "to", "type_as"}


class Kind(IntEnum):
    """How a tensor depends on the batch."""

    ROWS = 0
    """Through its examples, one after another."""
    MEAN = 1
    """Through a mean over its examples."""
    OTHER = 2


class LossTracker(TorchFunctionMode):
    """Follows a step from the batch to the loss; ``columns`` are the whole data's."""

    def __init__(self, batch: Sequence[Tensor], columns: Sequence[Tensor]) -> None:
        super().__init__()
        self._columns = columns
        self._kinds = {id(column): Kind.ROWS for column in batch}
        self._alive = list(batch)  # else another tensor could get the same id

    def is_mean(self, loss: Tensor) -> bool:
        """Whether a loss ends in a known mean."""
        return self._kinds.get(id(loss)) is Kind.MEAN

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Compute, and note the kinds of what comes out."""
        kwargs = kwargs or {}
        given = [kind for leaf in tree_leaves((args, kwargs)) if (kind := self._kinds.get(id(leaf))) is not None]
        found = func(*args, **kwargs)
        if given:
            tensors = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
            self._alive += tensors
            self._kinds |= {id(tensor): self._kind(func, given, args, kwargs, tensor) for tensor in tensors}
        return found

    def _kind(self, func: Any, given: list[Kind], args: Any, kwargs: Mapping[str, Any], found: Tensor) -> Kind:
        name = func.__name__.strip("_")
        if Kind.OTHER in given or len(set(given)) > 1:
            return Kind.OTHER
        if given[0] is Kind.MEAN:
            dividing = "div" in name and id(args[0]) not in self._kinds
            squared = name in _PRODUCTS and len(given) > 1
            return Kind.OTHER if name not in _LINEAR or dividing or squared else Kind.MEAN
        if func in _LOSSES or func in _BY_LABEL:
            reduction = kwargs.get("reduction", "mean")
            if reduction == "none":
                return Kind.ROWS
            known = reduction == "mean" or (func is functional.kl_div and reduction == "batchmean")
            return Kind.MEAN if known and (func in _LOSSES or self._takes_all(kwargs)) else Kind.OTHER
        if name == "mean":
            dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
            several = [dims] if isinstance(dims, int) else dims
            over_examples = several is None or 0 in [dim % args[0].dim() for dim in several]
            return Kind.MEAN if over_examples else Kind.ROWS
        return Kind.ROWS if found.dim() else Kind.OTHER

    def _takes_all(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether a loss by labels weighs no classes and leaves no label of the data out."""
        ignored = kwargs.get("ignore_index", -100)
        labels = [column for column in self._columns if not column.is_floating_point()]
        return kwargs.get("weight") is None and not any(bool((column == ignored).any()) for column in labels)


@torch.no_grad()
def check_known_mean(step: ExampleStep, weights: Sequence[Tensor], columns: Sequence[Tensor]) -> None:
    """Raise unless a training step's loss ends in a known mean."""
    batch = [column[:EXAMPLES].to(weights[0].device, copy=True) for column in columns]
    with ExitStack() as stack:
        stack.enter_context(pure_step_guard(step.module, "training"))
        tracker = stack.enter_context(LossTracker(batch, columns))
        stack.enter_context(HashedDropout())
        loss, _ = step.on_batch(weights, batch)
    if not tracker.is_mean(loss):
        raise CannotBatchError(
            "its loss does not end in a known mean over the batch's examples (if it is one, "
            '`executor="vectorized"` runs it side by side)'
        )
