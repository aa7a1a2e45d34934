"""What operations a step calls, noted while it runs: its tensors by number, in the order in which they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


@dataclass(frozen=True)
class Of:
    """Stands for a tensor among an operation's arguments.

    Attributes:
        number: Which tensor.
    """

    number: int


@dataclass(frozen=True)
class Operation:
    """An operation that a step called.

    Attributes:
        func: The operation.
        args: Its arguments, tensors by number.
        kwargs: Those by name.
        made: The numbers of the tensors that it returned.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: Sequence[int]

    @property
    def name(self) -> str:
        """Its name; that of one which writes in place is the other's."""
        name: str = self.func.overloadpacket.__name__
        return name.rstrip("_")

    @property
    def taken(self) -> list[int]:
        """The numbers of the tensors that it was given."""
        return [leaf.number for leaf in tree_leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Of)]


class Tape(TorchDispatchMode):
    """Notes the operations that are called while it is entered, and keeps all tensors.

    Args:
        columns: The batch.
        weights: The weights.
        keeps_values: Whether to keep what every operation has returned, too, as it was then.

    Attributes:
        values: What the operations have returned.
    """

    def __init__(self, columns: Sequence[Tensor], weights: Sequence[Tensor], keeps_values: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._keeps_values = keeps_values
        self.values: list[list[Tensor]] = []
        self.tensors: list[Tensor] = []
        self.operations: list[Operation] = []
        self._numbers: dict[int, int] = {}
        self.columns = [self.number(column) for column in columns]
        self.weights = {self.memory(self.number(weight)) for weight in weights}

    def number(self, tensor: Tensor) -> int:
        """Return a tensor's number."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return self._numbers[id(tensor)]

    def memory(self, number: int) -> int:
        """Return what tells which tensors are views of the same."""
        return int(self.tensors[number].untyped_storage()._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operation, and let it be computed."""
        kwargs = kwargs or {}
        given, named = tree_map_only(Tensor, lambda tensor: Of(self.number(tensor)), (args, kwargs))
        found = func(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
        if self._keeps_values:
            self.values.append([tensor.detach().clone() for tensor in tensors])
        made = [self.number(tensor) for tensor in tensors]
        self.operations.append(Operation(func, given, named, made))
        return found
