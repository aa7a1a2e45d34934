"""The proof that a loss, and what is logged, are means over a batch's examples, whatever the weights will be.

Numbers alone prove it at the weights and for the examples that they were computed with: a loss that is cut off below a
bound, or divided by how many examples were easy, is a mean until it gets there. So a step's operations are looked
through as well. Up to somewhere each example goes its own way; there the examples are summed; and behind that, nothing
may follow but what the sum of several batches could go through as well: sums, and products with what is fixed.

What depends on how many examples there are is told by running batches of two sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lightning_fedhpo.executors.vectorized.dependence import examples_behind
from lightning_fedhpo.executors.vectorized.per_example import CannotBatchError
from lightning_fedhpo.executors.vectorized.tape import Of, Operation, Tape

SIZES = (5, 7)
"""Examples of the batches that are compared."""

_SUMS = frozenset({"sum", "mean", "dot"})
_LOSSES = frozenset(
    {
        "mse_loss",
        "smooth_l1_loss",
        "huber_loss",
        "soft_margin_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "multi_margin_loss",
        "multilabel_margin_loss_forward",
    }
)
"""Losses of a batch that are the sum or the mean of its examples'."""
_BY_LABEL = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
"""Losses that are, unless they weigh classes or leave labels out."""
_ONE = frozenset(
    [
        "neg",
        "positive",
        "view",
        "_unsafe_view",
        "_reshape_alias",
        "reshape",
        "expand",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "t",
        "select",
        "slice",
        "unbind",
        "alias",
        "detach",
        "clone",
        "lift_fresh",
        "copy",
        "_to_copy",
        "sum",
        "mean",
        "stack",
        "cat",
        "add",
        "sub",
        "rsub",
    ]
)
"""Linear in all that they are given."""
_SHAPED = frozenset(
    ["ones_like", "zeros_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"]
)
"""Take no more than a shape."""
_ACROSS = frozenset(
    [
        "_softmax",
        "_log_softmax",
        "sort",
        "argsort",
        "cumsum",
        "cumprod",
        "cummax",
        "cummin",
        "logcumsumexp",
        "flip",
        "roll",
        "slice",
        "split",
    ]
)
"""Bring examples together where they go along their dimension."""
_RESHAPING = frozenset(
    [
        "view",
        "_unsafe_view",
        "_reshape_alias",
        "reshape",
        "expand",
        "permute",
        "transpose",
        "t",
        "clone",
        "alias",
        "detach",
    ]
)
"""Leave all elements what they are."""
_BY_ROW = frozenset(["squeeze", "unsqueeze", "slice", "select", "argmax", "_to_copy", "cumsum"])
"""Do to all rows of the data, beside operations on single elements, what they do to those of a batch."""
_VALUES = frozenset(["_local_scalar_dense", "equal", "allclose"])
"""Make something of tensors that is none."""
_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


class Kind(Enum):
    """How a tensor depends on a batch's examples."""

    FIXED = "not at all"
    ROWS = "each part on one of them"
    MEAN = "a sum over them, or a mean"


@dataclass(frozen=True)
class Mixed:
    """The kind of a tensor in which examples are brought together in another way.

    Attributes:
        why: What did it.
    """

    why: str


Step = Callable[[Sequence[Tensor]], tuple[Mapping[str, Tensor], Sequence[Tensor]]]
"""From a batch's columns to what comes of it, a loss and what is logged, by what they are called, and to the tensors
some of whose elements are dropped out."""


@torch.no_grad()
def check_means(step: Step, columns: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Raise unless all that comes of a batch is a mean over its examples.

    Args:
        step: The step.
        columns: The data, as columns; batches are made of their first rows.
        weights: What the step must not write to.

    >>> columns = [torch.tensor([[0.5], [2.0]])]
    >>> check_means(lambda batch: ({"its loss": batch[0].square().mean()}, []), columns, [])
    >>> check_means(lambda batch: ({"its loss": batch[0].mean().square()}, []), columns, [])
    Traceback (most recent call last):
    ...CannotBatchError: its loss is no mean over the batch's examples: `pow` follows \
on their mean
    """
    found = []

    def run(rows: Sequence[int], keeps_values: bool = True) -> Tape:
        batch = [column[torch.tensor(rows)] for column in columns]
        tape = Tape(batch, weights, keeps_values)
        with tape:
            found.append(step(batch))
        return tape

    one, other = (run([place % len(columns[0]) for place in range(size)], keeps_values=False) for size in SIZES)
    (values, dropped), (_, dropped_too) = found
    looked = _Look(one, other, columns, examples_behind(run, SIZES[0], len(columns[0])))
    for what, value in values.items():
        kind = looked.kinds.get(one.number(value), Kind.FIXED)
        if isinstance(kind, Mixed):
            raise CannotBatchError(f"{what} is no mean over the batch's examples: {kind.why}")
    for mine, its in zip(dropped, dropped_too, strict=True):
        if looked.kinds.get(one.number(mine), Kind.FIXED) is Kind.FIXED and not _scaled(mine, its):
            raise CannotBatchError("it drops out what is no example's own, as weights, by one mask for a batch")


class _Look:
    """Goes through the operations of two batches, and tells of every tensor of the first how it depends on examples."""

    def __init__(self, tape: Tape, other: Tape, whole: Sequence[Tensor], examples: Sequence[Sequence[Tensor]]) -> None:
        self._tape, self._other, self._whole = tape, other, whole
        self.kinds: dict[int, Kind | Mixed] = dict.fromkeys(tape.columns, Kind.ROWS)
        self._made: dict[int, Operation] = {}
        self._changed: set[int] = set()
        self._counts: dict[int, Counter[Any]] = {}
        pairs = zip(tape.operations, other.operations, strict=False)
        if len(tape.operations) != len(other.operations) or any(
            one.func is not two.func or len(one.made) != len(two.made) for one, two in pairs
        ):
            raise CannotBatchError("its step does not do the same with batches of all sizes")
        if len(examples) != len(tape.operations):
            raise CannotBatchError("its step does not do the same each time")
        for one, two, behind in zip(tape.operations, other.operations, examples, strict=True):
            self._note(one, two, behind)

    def _note(self, one: Operation, two: Operation, behind: Sequence[Tensor]) -> None:
        if one.name in ("embedding", "scatter"):
            self._check_rows(one)
        if one.name in _VALUES:
            self._check_value(one)
        for place, (mine, others) in enumerate(zip(one.made, two.made, strict=True)):
            scaled = _scaled(self._tape.tensors[mine], self._other.tensors[others])
            self._made.setdefault(mine, one)
            kind = self._kind(one, two, scaled, place)
            if kind is Kind.ROWS and bool((behind[place] > 1).any()):
                kind = Mixed(f"`{one.name}` brings examples together")
            self.kinds[mine] = kind
            if one.func._schema.is_mutable:
                self._written(mine, kind)

    def _check_rows(self, one: Operation) -> None:
        """Raise where the data asks for rows that a table has not: side by side, another client's would be taken."""
        table, rows = (one.args[0], one.args[1]) if one.name == "embedding" else (one.args[0], one.args[2])
        if self.kinds.get(rows.number, Kind.FIXED) is Kind.FIXED:
            return
        asked, shape = self._everywhere(rows.number), self._tape.tensors[table.number].shape
        there = shape[0 if one.name == "embedding" else one.args[1]] if shape else 1
        if asked is None:
            raise CannotBatchError(f"whether all that its data asks of `{one.name}` is there cannot be seen beforehand")
        if asked.numel() and not 0 <= int(asked.min()) <= int(asked.max()) < there:
            raise CannotBatchError(f"its data asks `{one.name}` for others than the {there} rows that it has")

    def _check_value(self, one: Operation) -> None:
        """Raise where torch itself asks for a tensor's value, but to check labels: as of a bound that is a buffer."""
        made, value = self._made.get(one.taken[0]), self._tape.tensors[one.taken[0]]
        if made is None or made.name not in ("aminmax", "min", "max") or value.is_floating_point():
            raise CannotBatchError("its step reads a tensor's value in Python, as a number that an option is")

    def _written(self, number: int, kind: Kind | Mixed) -> None:
        """Note what an operation in place makes of all views of its tensor."""
        memory = self._tape.memory(number)
        if memory in self._tape.weights:
            raise CannotBatchError("its step writes to its weights")
        same = [other for other in range(len(self._tape.tensors)) if self._tape.memory(other) == memory]
        self._changed.update(same)
        for other in same:
            self._counts.pop(other, None)
        if kind is not Kind.FIXED:
            self.kinds.update(dict.fromkeys(same, kind))

    def _kind(self, one: Operation, two: Operation, scaled: Sequence[int], place: int) -> Kind | Mixed:
        name, given = one.name, [self.kinds.get(number, Kind.FIXED) for number in one.taken]
        mixed = next((kind for kind in given if isinstance(kind, Mixed)), None)
        if name in _SHAPED or all(kind is Kind.FIXED for kind in given):
            return Kind.FIXED
        if mixed is not None:
            return mixed
        if Kind.MEAN in given:
            if scaled or not self._linear(one, given):
                return Mixed(f"`{name}` follows on their mean")
            return Kind.FIXED if self._counts_all(one) else Kind.MEAN
        if len(scaled) > 1 or self._brings_together(one, two, scaled):
            return Mixed(f"`{name}` brings examples together")
        if scaled:
            same = name in _COMPARISONS and self._is_same(one.made[0])
            return Kind.FIXED if same else Kind.ROWS
        if place == 0 and (name in _SUMS or name in _LOSSES):
            self._count(one)
            return Kind.MEAN
        if place == 0 and name in _BY_LABEL:
            return self._by_label(one)
        return Mixed(f"`{name}` makes something else of them")

    def _linear(self, one: Operation, given: Sequence[Kind | Mixed]) -> bool:
        """Whether an operation on sums does to several batches' what it does to one's."""
        if Kind.ROWS in given:
            return False
        if one.name in ("mul", "div"):
            left = one.args[0]
            first = isinstance(left, Of) and self.kinds.get(left.number) is Kind.MEAN
            return given.count(Kind.MEAN) == 1 and (
                one.name == "mul" or (first and not one.kwargs.get("rounding_mode"))
            )
        if one.name == "where":
            return self.kinds.get(one.args[0].number, Kind.FIXED) is Kind.FIXED
        if one.name == "_to_copy":
            before, after = (self._tape.tensors[number] for number in (one.taken[0], one.made[0]))
            return after.is_floating_point() or not before.is_floating_point()
        return one.name in _ONE

    def _count(self, one: Operation) -> None:
        """Note how many examples a sum counts in which two tensors are equal, or are not."""
        compared = None if one.taken[0] in self._changed else self._made.get(one.taken[0])
        if one.name == "sum" and compared is not None and compared.name in ("eq", "ne") and len(compared.taken) == 2:
            counted = *compared.taken, *self._tape.tensors[one.made[0]].shape
            self._counts[one.made[0]] = Counter({counted: 1 if compared.name == "eq" else -1})

    def _counts_all(self, one: Operation) -> bool:
        """Whether a sum of counts is of all examples: of those of a kind and of those that are not."""
        counts = [self._counts.get(number) for number in one.taken]
        if one.kwargs or one.func._schema.is_mutable or any(count is None for count in counts):
            return False
        if one.name == "add" and len(counts) == 2:
            found = Counter(counts[0])
            found.update(counts[1] or {})
        elif len(counts) == 1 and one.name in _RESHAPING | {"sum", "squeeze", "unsqueeze", "_to_copy"}:
            found = Counter(counts[0])
        else:
            return False
        self._counts[one.made[0]] = found
        return not any(found.values())

    def _brings_together(self, one: Operation, two: Operation, scaled: Sequence[int]) -> bool:
        """Whether an operation goes along the dimension in which examples lie beside each other."""
        if one.name == "embedding" and len(one.args) > 3 and one.args[3]:  # scale_grad_by_freq
            return True
        across = one.name in _ACROSS
        if not across and "batch_norm" not in one.name:
            return False
        tensors = [tape.tensors[operation.taken[0]] for tape, operation in ((self._tape, one), (self._other, two))]
        lie = _scaled(*tensors)
        names = [argument.name for argument in one.func._schema.arguments]
        values = {**dict(zip(names, one.args, strict=False)), **one.kwargs}
        if not across:
            return lie == [0] and bool(values.get("training", values.get("train", True)))
        if one.name == "slice" and lie == list(scaled):  # all of them, most of the time
            return any(self._tape.tensors[one.made[0]].shape[dim] != tensors[0].shape[dim] for dim in lie)
        dims = values.get("dims", values.get("dim", -1 if one.name in ("sort", "argsort") else 0))
        several = dims if isinstance(dims, list | tuple) else [dims]
        return any(dim % max(1, tensors[0].dim()) in lie for dim in several)

    def _by_label(self, one: Operation) -> Kind | Mixed:
        _, target, weight, reduction, ignored = one.args
        if reduction == 1 and weight is not None:
            return Mixed("its classes are weighed")
        if reduction == 1:
            labels = self._everywhere(target.number)
            if labels is None:
                return Mixed(f"whether it leaves labels out ({ignored}) cannot be seen beforehand")
            if bool((labels.long() == ignored).any()):
                return Mixed(f"it leaves labels out ({ignored})")
        return Kind.MEAN

    def _is_same(self, number: int) -> bool:
        """Whether a comparison comes out the same for all of the data."""
        found = self._everywhere(number)
        return found is not None and bool((found == found.reshape(-1)[0]).all())

    def _everywhere(self, number: int) -> Tensor | None:
        """Return a tensor for all of the data, None where it is not made of columns, element by element."""
        operation = self._made.get(number)
        if number in self._changed:
            return None
        if number in self._tape.columns:
            return self._whole[self._tape.columns.index(number)]
        if operation is None:
            return None
        pointwise = torch.Tag.pointwise in operation.func.tags
        if not pointwise and operation.name not in _RESHAPING | _BY_ROW:
            return None
        values = {taken: self._everywhere(taken) for taken in operation.taken}
        if any(value is None for value in values.values()):
            return None
        if operation.name in _RESHAPING:
            return values[operation.taken[0]]
        as_in_batch = all(v.shape[1:] == self._tape.tensors[place].shape[1:] for place, v in values.items())  # type: ignore[union-attr]  # asked above
        if not as_in_batch and not (pointwise and len(values) == 1):
            return None
        arguments, named = tree_map_only(
            Of, lambda tensor: values[tensor.number], (operation.args, dict(operation.kwargs))
        )
        found: Tensor = operation.func(*arguments, **named)
        return found


def _scaled(one: Tensor, other: Tensor) -> list[int]:
    """Return the dimensions that depend on how many examples there are."""
    if one.dim() != other.dim():
        raise CannotBatchError("its step does not do the same with batches of all sizes")
    return [dim for dim, (size, another) in enumerate(zip(one.shape, other.shape, strict=True)) if size != another]
