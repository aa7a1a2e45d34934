"""A device that is not the CPU, where there is none: it computes on the CPU, and tensors of two devices cannot meet.

torch keeps the key ``PrivateUse1`` for devices from outside. Here a tensor of such a device holds a tensor of the CPU.
Like a CUDA device it takes single numbers of the CPU in an operation, and indices to index by. It can be set up once in
a process and stays, so tests on it run in a process of their own (test_standin_device.py).
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from lightning_fedhpo.testing import quiet_trainer

NAME = "standin"
aten = torch.ops.aten
_MOVES = {aten.copy_.default, aten._foreach_copy_.default}
_INDEXING = {aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default}


class Backend:
    """What torch asks a device's module."""

    memory = 1 << 30
    returned: list[str] = []
    """The operations that brought something back to the CPU."""

    def __init__(self) -> None:
        always: dict[str, Any] = {"is_initialized": True, "is_available": True, "device_count": 1, "current_device": 0}
        for name, value in ({"_is_in_bad_fork": False} | always).items():
            setattr(self, name, lambda value=value: value)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.memory, self.memory

    def manual_seed_all(self, seed: int) -> None:
        pass


class There(Tensor):
    """A tensor of the device."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # what comes back is no tensor of the device

    @staticmethod
    def __new__(cls, inner: Tensor) -> There:
        layout: Any = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        made: Any = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=DEVICE, **layout)
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, *args, **(kwargs or {}))

    def new_tensor(self, data: Any, **kwargs: Any) -> Any:
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device} | kwargs)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.inner.__reduce_ex__(protocol)  # a checkpoint is read on the CPU in any case

    def __repr__(self, **_: Any) -> str:
        return f"{self.inner!r} on {NAME}"


def computed(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an operation that has to do with the device."""
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    theirs = {id(one.inner): one for one in given if isinstance(one, There)}
    others = [one for one in given if not isinstance(one, There)]
    device = kwargs.get("device")
    there = bool(theirs) if device is None else torch.device(device).type == NAME
    moves = func in _MOVES or (device is not None and bool(theirs) != there)
    leaves = theirs and (not isinstance(tree_leaves(args[0])[0], There) if func in _MOVES else moves and not there)
    if leaves or func is aten._local_scalar_dense.default:
        Backend.returned.append(str(func))
    if not moves and theirs and any(one.dim() for one in others) and func not in _INDEXING:
        raise RuntimeError(f"tensors of two devices meet in {func}: {[(type(one), one.shape) for one in given]}")
    args, kwargs = tree_map(lambda one: one.inner if isinstance(one, There) else one, (args, kwargs))
    found = func(*args, **(kwargs if device is None else {**kwargs, "device": "cpu"}))
    if not there and not (func in _MOVES and theirs):
        return found
    known = {id(one): one for one in others} | theirs  # what it has written to, and hands on
    return tree_map(
        lambda one: one if not isinstance(one, Tensor) else known[id(one)] if id(one) in known else There(one), found
    )


DEVICE = torch.device("cpu")
_library: list[Any] = []


def set_up() -> torch.device:
    """Register the device; once in a process."""
    global DEVICE
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # not in older torch

    _setup_privateuseone_for_python_backend(rename=NAME, backend_module=Backend())
    torch.__future__.set_swap_module_params_on_conversion(True)  # else `module.to` would make other parameters
    _library.append(torch.library.Library("_", "IMPL"))
    _library[0].fallback(computed, "PrivateUse1")
    DEVICE = torch.device(NAME, 0)
    for name in ("tensor", "as_tensor"):  # they know the devices that torch was built for
        setattr(torch, name, _made_here(getattr(torch, name)))
    return DEVICE


def _made_here(make: Any) -> Any:
    def made(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Tensor:
        found = make(*args, **kwargs) if device is None else make(*args, **kwargs).to(device)
        return found.requires_grad_() if requires_grad else found

    return made


class StandInAccelerator(Accelerator):
    """What Lightning asks."""

    def setup_device(self, device: torch.device) -> None:
        pass

    def teardown(self) -> None:
        pass

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        return [DEVICE]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return NAME


def trainer_there(rounds: int, *callbacks: Any, **options: Any) -> Trainer:
    """Return a Trainer on the device."""
    strategy = SingleDeviceStrategy(device=DEVICE, accelerator=StandInAccelerator())
    return quiet_trainer(rounds, *callbacks, accelerator="auto", strategy=strategy, **options)
