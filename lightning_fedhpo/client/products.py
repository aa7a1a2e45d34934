"""Which of torch's two libraries multiplies matrices: MKL, or oneDNN where that has the processor's wider instructions.

torch multiplies by MKL, which keeps its widest instructions to Intel's processors. oneDNN, which torch brings along,
uses them wherever they are: on AMD's Zen 5 it does twice as much a second, but each call costs it more. torch has one
switch for it, made for processors on which oneDNN then rounds to bfloat16 (AMX): those are left alone, and on others
the shapes of a first step are multiplied both ways beforehand, to see that all digits are there.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_fedhpo.run.machine import processor

RATES = (110e9, 220e9)
"""Floating-point operations a second of one thread, by MKL and by oneDNN, on the processors in question."""
CALL = 20e-6
"""Seconds that a call of oneDNN takes more than one of MKL."""
SMALLEST = 16**3
"""Multiplications of a product up to which torch never calls oneDNN."""
WORTH = 0.9
"""What part of the time the other library may take at most."""
DIGITS = 2e-6
"""How far a product may be from the exact one, of the sum of its terms' sizes; bfloat16 is farther."""


class Product(NamedTuple):
    """A product of matrices, or several side by side: (rows, inner) by (inner, columns)."""

    lanes: int
    rows: int
    inner: int
    columns: int

    @property
    def multiplications(self) -> int:
        """How many numbers are multiplied."""
        return self.lanes * self.rows * self.inner * self.columns


@cache
def offered() -> bool:
    """Whether oneDNN has wider instructions than MKL on this machine, and computes in full precision.

    >>> offered() in (True, False)
    True
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    libraries = torch.backends.mkl, torch.backends.mkldnn
    return all(library.is_available() for library in libraries) and wider_by_onednn(processor())


def wider_by_onednn(facts: dict[str, str]) -> bool:
    """Whether a processor, as Linux describes it, has 512 bits in one piece that MKL leaves unused, and no AMX.

    >>> wider_by_onednn({"vendor_id": "AuthenticAMD", "cpu family": "26", "flags": "fma avx2 avx512f"})
    True
    >>> wider_by_onednn({"vendor_id": "GenuineIntel", "cpu family": "6", "flags": "fma avx2 avx512f"})
    False
    """
    flags = facts.get("flags", "").split()
    family = int(facts.get("cpu family", 0))  # 25 has half as wide units
    return facts.get("vendor_id") == "AuthenticAMD" and family >= 26 and "avx512f" in flags and "amx_tile" not in flags


class Products(TorchDispatchMode):
    """Notes the products of single-precision matrices that are computed while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.met: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note a product, and let it be computed."""
        place = _FACTORS.get(func.overloadpacket)
        if place is not None:
            self.met += _product(*args[place : place + 2])
        return func(*args, **(kwargs or {}))


_FACTORS: dict[Any, int] = {
    torch.ops.aten.mm: 0,
    torch.ops.aten.addmm: 1,
    torch.ops.aten.bmm: 0,
    torch.ops.aten.baddbmm: 1,
}
"""Where the two factors are among an operation's arguments."""


def _product(one: Tensor, other: Tensor) -> list[Product]:
    """Return the product of two factors where oneDNN can compute it."""
    if one.dtype != torch.float32 or not one.is_cpu:
        return []
    return [Product(one.shape[0] if one.dim() == 3 else 1, one.shape[-2], one.shape[-1], other.shape[-1])]


def products_in(module: GraphModule) -> list[Product]:
    """Return the products among the operations of a traced step."""
    found = []
    for node in module.graph.nodes:
        place = _FACTORS.get(getattr(node.target, "overloadpacket", None))
        if place is not None:
            found += _product(*(_value(module, factor) for factor in node.args[place : place + 2]))
    return found


def _value(module: GraphModule, node: Node) -> Any:
    return getattr(module, str(node.target)) if node.op == "get_attr" else node.meta["val"]


def products_of(step: Callable[[], object]) -> list[Product]:
    """Return the products that a step computes; none where they are not worth a look, or the step fails.

    >>> [tuple(one) for one in products_of(lambda: torch.zeros(2, 3) @ torch.zeros(3, 4))] in ([], [(1, 2, 3, 4)])
    True
    """
    if not offered():
        return []
    products = Products()
    try:
        with products:
            step()
    except Exception:
        return []  # a client that the run goes on without: whoever asks for its result is told
    return products.met


def by_onednn(products: Sequence[Product]) -> bool:
    """Whether a step's products are to be left to oneDNN: it is faster, and gives all digits.

    Where somebody has told torch already how exact products are to be, it stays at that.

    >>> by_onednn([])
    False
    """
    if not offered():
        return False
    single = dict.fromkeys(one._replace(lanes=1) for one in products)  # all lanes are multiplied in one way
    return faster(products, torch.get_num_threads()) and _told() == "highest" and all(map(exact, single))


def faster(products: Iterable[Product], threads: int) -> bool:
    """Whether oneDNN is likely to be faster on so many threads.

    >>> faster([Product(1, 32, 3136, 2048)], 1), faster([Product(1, 16, 784, 128)] * 3, 1), faster([], 1)
    (True, False, False)
    """
    large = [one.multiplications for one in products if one.multiplications > SMALLEST]
    ours, other = (2 * sum(large) / (rate * threads) for rate in RATES)
    return other + len(large) * CALL < WORTH * ours


def _told() -> str | None:
    """Return how exact products are to be, None where somebody has said so by torch's newer settings."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


@cache
def exact(product: Product) -> bool:
    """Whether oneDNN gives a product of this shape with all digits of single precision."""
    draw = torch.Generator().manual_seed(0)
    lanes, rows, inner, columns = product
    one = torch.randn(lanes, rows, inner, generator=draw, dtype=torch.float32)
    other = torch.randn(lanes, inner, columns, generator=draw, dtype=torch.float32)
    with multiplying(True):
        found = torch.bmm(one, other)
    wrong = (found - torch.bmm(one.double(), other.double())).abs().max()
    return bool(wrong <= DIGITS * torch.bmm(one.abs(), other.abs()).max())


@contextmanager
def multiplying(by_onednn: bool) -> Iterator[None]:
    """Leave products to oneDNN inside, where that was found to be right and nobody has said otherwise since.

    >>> with multiplying(False):
    ...     torch.get_float32_matmul_precision()
    'highest'
    """
    if not by_onednn or _told() != "highest":
        yield
        return
    newer = [getattr(backend, "matmul", None) for backend in (torch.backends.mkldnn, torch.backends.cuda)]
    unset = [one for one in newer if getattr(one, "fp32_precision", None) == "none"]
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        if _told() == "medium":
            torch.set_float32_matmul_precision("highest")
            for one in unset:  # what was never set goes on to follow torch's general setting
                one.fp32_precision = "none"  # type: ignore[union-attr]  # it has one
