"""Products of matrices are left to oneDNN where that is faster, gives all digits, and nobody has said otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_fedhpo import FederatedData, FederatedLoop, Fixed, Iid
from lightning_fedhpo.client import products
from lightning_fedhpo.client.products import Product
from lightning_fedhpo.executors import Vectorized
from lightning_fedhpo.testing import ToyModule, quiet_trainer

LARGE = Product(1, 64, 512, 512)


class Watching(ToyModule):
    """A wide network that notes how exact products were to be."""

    def __init__(self, user: str | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3))
        self.seen: set[str] = set()
        self._user = user

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        self.seen.add(torch.get_float32_matmul_precision())
        return self.net(x)

    def setup(self, stage: str) -> None:
        """Say how exact products are to be."""
        if self._user is not None:
            torch.set_float32_matmul_precision(self._user)


class Rounding(TorchDispatchMode):
    """Multiplies as a processor with units for bfloat16 may."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.bmm.default:
            args = [tensor.bfloat16().float() for tensor in args]
        return func(*args, **(kwargs or {}))


@pytest.fixture
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def wished(monkeypatch: pytest.MonkeyPatch, precision: None) -> Iterator[None]:
    """Have every product be worth it, whatever the processor."""
    monkeypatch.setattr(products, "offered", lambda: True)
    monkeypatch.setattr(products, "faster", lambda met, threads: bool(met))
    products.exact.cache_clear()
    if not products.exact(LARGE):
        pytest.skip("this processor has units for bfloat16, which oneDNN would use")
    yield
    products.exact.cache_clear()


def fitted(module: ToyModule, executor: Any) -> list[Tensor]:
    """Train for two rounds and return the weights."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(120, 40, generator=generator), torch.randint(0, 3, (120,), generator=generator)
    data = FederatedData((x, y), Iid(3), fractions=(0.6, 0.2, 0.2), batch_size=8)
    quiet_trainer(2, FederatedLoop(cohort=3, executor=executor), Fixed()).fit(module, datamodule=data)
    return [weight.detach().clone() for weight in module.parameters()]


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "expected"),
    [
        ("AuthenticAMD", "26", "sse avx2 avx512f avx512_bf16", True),
        ("AuthenticAMD", "25", "sse avx2 avx512f avx512_bf16", False),  # halves of 256 bits
        ("AuthenticAMD", "26", "sse avx2", False),
        ("AuthenticAMD", "27", "sse avx2 avx512f amx_tile", False),  # would be rounded
        ("GenuineIntel", "26", "sse avx2 avx512f", False),  # MKL has them
    ],
)
def test_processors(vendor: str, family: str, flags: str, expected: bool) -> None:
    facts = {"vendor_id": vendor, "cpu family": family, "flags": flags}
    assert products.wider_by_onednn(facts) is expected


def test_no_processor_is_known_where_linux_does_not_tell() -> None:
    assert not products.wider_by_onednn({"processor": "0"})


def test_products_of_a_step_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "offered", lambda: True)
    layer, x = nn.Linear(7, 5), torch.ones(3, 7, requires_grad=True)
    met = products.products_of(lambda: layer(x).sum().backward())
    assert sorted(met) == sorted([Product(1, 3, 7, 5), Product(1, 3, 5, 7), Product(1, 5, 3, 7)])
    several = products.products_of(lambda: torch.ones(4, 3, 2) @ torch.ones(4, 2, 6))
    assert several == [Product(4, 3, 2, 6)]
    assert products.products_of(lambda: torch.ones(3, 2).double() @ torch.ones(2, 6).double()) == []


def test_a_step_that_fails_has_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "offered", lambda: True)
    assert products.products_of(lambda: torch.ones(3, 2) @ torch.ones(3, 2)) == []


def test_large_products_are_faster_and_calls_cost() -> None:
    assert products.faster([LARGE], 1)
    assert not products.faster([LARGE, *[Product(1, 20, 20, 20)] * 100], 1)
    assert products.faster([LARGE, *[Product(1, 16, 16, 16)] * 100], 1)  # so small that torch keeps them with MKL
    assert not products.faster([LARGE], 64)


def test_what_is_rounded_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def rounding(by_onednn: bool) -> Iterator[None]:
        with Rounding():
            yield

    monkeypatch.setattr(products, "multiplying", rounding)
    products.exact.cache_clear()
    assert not any(products.exact(Product(1, 8, inner, 8)) for inner in (8, 512, 32768))
    products.exact.cache_clear()


def said() -> list[str]:
    """Return how exact products are to be, by torch's older and newer settings."""
    newer = [getattr(backend, "matmul", None) for backend in (torch.backends.mkldnn, torch.backends.cuda)]
    return [torch.get_float32_matmul_precision(), *(getattr(one, "fp32_precision", "") for one in newer)]


@pytest.mark.usefixtures("precision")
def test_inside_only_and_as_it_was_afterwards() -> None:
    before = said()
    with pytest.raises(KeyError), products.multiplying(by_onednn=True):
        assert said()[0] == "medium"
        raise KeyError
    assert said() == before
    with products.multiplying(by_onednn=False):
        assert said() == before


@pytest.mark.usefixtures("precision")
def test_what_somebody_says_meanwhile_stays() -> None:
    torch.set_float32_matmul_precision("high")
    with products.multiplying(by_onednn=True):
        assert said()[0] == "high"
    torch.set_float32_matmul_precision("highest")
    with products.multiplying(by_onednn=True):
        torch.set_float32_matmul_precision("high")
    assert said()[0] == "high"


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="this torch has no such setting")
@pytest.mark.usefixtures("precision")
def test_newer_settings_stay() -> None:
    matmul: Any = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "bf16"
        with products.multiplying(by_onednn=True):
            assert matmul.fp32_precision == "bf16"
        assert matmul.fp32_precision == "bf16"
        assert not products.by_onednn([LARGE])
    finally:
        matmul.fp32_precision = before


@pytest.mark.usefixtures("wished")
@pytest.mark.parametrize("executor", ["sequential", Vectorized(compile=False)], ids=["sequential", "vectorized"])
def test_a_run_is_the_same_up_to_rounding(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Watching()
    ours = fitted(module, executor)
    assert executor != "sequential" or module.seen == {"highest", "medium"}  # side by side see the next test
    assert torch.get_float32_matmul_precision() == "highest"
    monkeypatch.setattr(products, "offered", lambda: False)
    for one, other in zip(ours, fitted(Watching(), executor), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("wished")
def test_steps_side_by_side_are_left_to_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, before = [], products.multiplying

    def noting(by_onednn: bool) -> Any:
        seen.append(by_onednn)
        return before(by_onednn)

    monkeypatch.setattr("lightning_fedhpo.executors.vectorized.programs.multiplying", noting)
    fitted(Watching(), Vectorized(compile=False))
    assert len(seen) == 4  # training and validation, of the proof's clients and of the run's


@pytest.mark.usefixtures("wished")
def test_other_processors_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert products.by_onednn([LARGE])
    monkeypatch.setattr(products, "offered", lambda: False)
    assert not products.by_onednn([LARGE])


@pytest.mark.usefixtures("wished")
def test_who_has_said_how_exact_products_are_to_be_is_obeyed() -> None:
    module = Watching("high")
    fitted(module, "sequential")
    assert module.seen == {"high"}
    assert torch.get_float32_matmul_precision() == "high"
