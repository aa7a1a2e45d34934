"""Importing the package changes nothing in Lightning, torch and numpy."""

from __future__ import annotations

from pathlib import Path

from tests.runs import process

SCRIPT = """
import atexit, signal, sys, threading
import lightning.pytorch as L, numpy, torch, torchmetrics
from lightning.fabric.strategies.launchers import subprocess_script as fabric_script
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy, launchers
from lightning.pytorch.strategies.launchers import multiprocessing, subprocess_script
from lightning.pytorch.trainer.connectors import signal_connector
from torch import distributed

CLASSES = [
    launchers._SubprocessScriptLauncher, launchers._MultiProcessingLauncher, DDPStrategy, SingleDeviceStrategy,
    Strategy, L.Trainer, L.LightningModule, L.Callback, _FitLoop, signal_connector._SignalConnector,
    torch.nn.Module, torch.Tensor, torch.optim.Optimizer, torch.optim.SGD, torchmetrics.Metric,
]
MODULES = [
    subprocess_script, fabric_script, multiprocessing, distributed, torch, torch.nn.functional, numpy, numpy.random
]

def state():
    found = {f"{c.__qualname__}.{name}": value for c in CLASSES for name, value in vars(c).items()}
    return found, {f"{m.__name__}.{name}": value for m in MODULES for name, value in vars(m).items()}

own, shared = state()
process = (sys.excepthook, signal.getsignal(signal.SIGTERM), atexit._ncallbacks(), threading.active_count())
import lightning_fedhpo
lightning_fedhpo.FederatedLoop()
assert process == (
    sys.excepthook, signal.getsignal(signal.SIGTERM), atexit._ncallbacks(), threading.active_count()
), "the process"
own_after, shared_after = state()
assert sorted(own) == sorted(own_after)
known = [(own, own_after), (shared, shared_after)]  # a module may get attributes: its parts that are imported
print([name for before, after in known for name, value in before.items() if after.get(name) is not value])
"""


def test_importing_the_package_changes_nothing_elsewhere(tmp_path: Path) -> None:
    done = process("-c", SCRIPT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[]"
