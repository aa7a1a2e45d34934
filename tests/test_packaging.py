"""What is installed: every module and every YAML file, importable without the optional packages."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.runs import process

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10 has it under another name, which pytest brings along
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Imports the package where none of these is installed: neither importable nor among the distributions, which
# is where torchmetrics and Lightning look.
BARE_IMPORT = """
import importlib.metadata, importlib.util, sys

blocked = {"matplotlib", "joblib", "hydra_plugins", "optuna", "sklearn", "datasets", "pandas", "PIL",
           "plotly"}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
installed = importlib.metadata.Distribution.from_name

def from_name(name):
    if name.replace("-", "_").lower() in blocked | {"scikit_learn"}:
        raise importlib.metadata.PackageNotFoundError(name)
    return installed(name)

importlib.metadata.Distribution.from_name = from_name

import atexit, signal, threading
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
changed = [name for before, after in known for name, value in before.items() if after.get(name) is not value]

missing = [name for name in lightning_fedhpo.__all__ if not hasattr(lightning_fedhpo, name)]
loaded = blocked & {name.partition(".")[0] for name in sys.modules}
print(f"missing={missing} loaded={sorted(loaded)} changed={changed}")
"""


def package_folders() -> set[str]:
    """Every folder of the tree that holds Python files of the package, by its import name."""
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "lightning_fedhpo").rglob("*.py")}
    return {".".join(folder.parts) for folder in folders} | {"lightning_fedhpo.conf"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy: setuptools leaves folders behind where it builds."""
    tree, output = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for folder in ("lightning_fedhpo", "conf"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree)
    done = process(
        "-m", "build", "--wheel", "--no-isolation", "--outdir", str(output), str(tree), cwd=output, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(output.glob("*.whl")))


def test_every_package_is_listed_and_has_an_init_file() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert package_folders() == set(listed)
    assert listed == sorted(listed)
    # Without the file a folder would be a namespace package: importable from the tree, and skipped by most tools.
    folders = [ROOT.joinpath(*name.split(".")) for name in {*listed} - {"lightning_fedhpo.conf"}]
    assert [folder for folder in [*folders, ROOT / "conf"] if not (folder / "__init__.py").is_file()] == []
    assert (ROOT / "conf" / "__init__.py").read_text() == ""


def test_wheel_holds_every_module_and_every_yaml_file(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lightning_fedhpo").rglob("*.py")}
    configs = {f"lightning_fedhpo/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert held == modules | configs | {"lightning_fedhpo/py.typed", "lightning_fedhpo/conf/__init__.py"}


def test_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    info = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = wheel.read(info).decode()
    assert "License-Expression: Apache-2.0" in metadata
    points = wheel.read(info.replace("METADATA", "entry_points.txt")).decode()
    # Nothing else: an entry point of Lightning's or Hydra's would change programs that never asked for this package.
    assert sorted(points.splitlines()) == [
        "[console_scripts]",
        "fedhpo = lightning_fedhpo.cli.main:main",
        "fedhpo-compare = lightning_fedhpo.cli.compare:main",
        "fedhpo-export = lightning_fedhpo.cli.export:main",
        "fedhpo-features = lightning_fedhpo.cli.features:main",
        "fedhpo-report = lightning_fedhpo.cli.report:main",
        "fedhpo-suggest = lightning_fedhpo.cli.suggest:main",
    ]


def test_a_bare_install_imports_and_changes_nothing_in_lightning_torch_and_numpy(tmp_path: Path) -> None:
    done = process("-c", BARE_IMPORT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "missing=[] loaded=[] changed=[]"


def test_constraints_pin_what_the_project_asks_for() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    exact = re.compile(r"[a-z0-9-]+==[^\s;]+(; python_version (<|>=) '3\.11')?")
    assert [pin for pin in pins if not exact.fullmatch(pin)] == []
    pinned = {pin.partition("==")[0] for pin in pins}
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *(n for e in ("plot", "joblib", "data", "dev") for n in extras[e])]
    names = {re.split(r"[\[<>=]", need)[0] for need in asked} - {"lightning-fedhpo"}
    assert names <= pinned
