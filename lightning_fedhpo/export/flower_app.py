"""Writes a Flower app that trains a run's LightningModule with the values that the run has found."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lightning_fedhpo.arguments import shown
from lightning_fedhpo.binding.param_groups import group_of
from lightning_fedhpo.export import flower_templates as files
from lightning_fedhpo.export.flower_server import server_step
from lightning_fedhpo.export.flower_task import literal, targets, task
from lightning_fedhpo.files.folders import make_folder, replacing
from lightning_fedhpo.files.reading import reading
from lightning_fedhpo.plots import RunData, load
from lightning_fedhpo.tracking.run_files import RUN_RECORD

ALGORITHMS = ("FedAvg", "FedProx", "Reptile", "FedOpt")
"""The methods whose server needs nothing but the clients' mean, and whose clients keep nothing."""
REASONS = {
    "SCAFFOLD": "server and clients keep control variates, which Flower's messages would have to carry",
    "FedDyn": "the server keeps a state for every client",
    "Ditto": "every client keeps a model of its own",
    "FedPA": "clients send what they compute from samples of a posterior, not their model",
    "DeltaSGD": "clients set their step sizes themselves",
    "FedExP": "the server keeps its last two models",
    "FedHyper": "learning rates depend on the rounds before",
    "MAML": "clients send a gradient through their training, not their model",
}
PATH = r"(path|file|folder|dir|root)s?=.|=.*[/\\\\.]"
"""What a path looks like in the settings: by its name, or by its separators."""


@dataclass(frozen=True)
class FlowerApp:
    """An app that was written: how it is simulated, and what its user should know."""

    command: str
    notes: list[str]


def write_flower_app(run: Path, folder: Path) -> FlowerApp:
    """Write an app into a new or empty folder.

    Args:
        run: The folder of a finished run.
        folder: Where the app goes.

    Raises:
        ValueError: The folder has something in it, or what the run has found has no place in an app.
        FileNotFoundError: There is no finished run.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"an app goes into a new folder or an empty one, and {folder} is neither: name another.")
    found = load(run)
    with reading(run / "config.yaml"):
        settings: Any = OmegaConf.to_container(OmegaConf.create(dict(found.settings)), resolve=True)
        algorithm, fed = dict(settings["algorithm"]), settings["fed"]
        clients = _count(found)
        best, rounds = found.best, int(settings["trainer"]["max_epochs"])
        name, home = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "app", _home(run)
        data = None if "fingerprint" in settings["data"] else _absolute(dict(settings["data"]), home)
        model = dict(settings["model"])
    _check(algorithm, best, model)
    how = f'local --stream --federation-config "num-supernodes={clients}"'
    own = _modules(home, model, data)
    needs = sorted({_package(root) for root in {"lightning", *_roots(model)} - set(own)})
    written = {
        "pyproject.toml": files.PYPROJECT.substitute(
            command=f"flwr run . {how}", name=name, needs=", ".join(needs), rounds=rounds,
            cohort=min(int(fed["cohort"]), clients), save=json.dumps(str(folder / "model.pt")),
            seed=int(settings["seed"]),
            client=_toml(best["client"]), server=_toml(best["server"]),
        ),
        "tuned/__init__.py": files.INIT,
        "tuned/task.py": task(model, best["client"], settings),
        "tuned/data.py": files.DATA_HEAD + (files.UNKNOWN if data is None else _simulated(data)),
        "tuned/server_step.py": server_step(algorithm),
        "tuned/client_app.py": files.CLIENT_APP.substitute(
            weight="examples" if algorithm.get("weighting", "examples") == "examples" else "1"
        ),
        "tuned/server_app.py": files.SERVER_APP,
    }  # fmt: skip
    make_folder("folder", folder / "tuned")
    for place in own.values():
        for source in place.rglob("*.py") if place.is_dir() else [place]:
            target = folder / source.relative_to(home)
            make_folder("folder", target.parent)
            shutil.copyfile(source, target)
    for path, text in written.items():
        with replacing(folder / path) as file:
            file.write(text)
    return FlowerApp(f"flwr run {shlex.quote(str(folder))} {how}", list(_notes(settings, data, own)))


def _check(algorithm: Mapping[str, Any], best: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Refuse what has no place in an app, with the reason."""
    kind = str(algorithm["_target_"]).rpartition(".")[2]
    if kind not in ALGORITHMS or not str(algorithm["_target_"]).startswith("lightning_fedhpo."):
        why = REASONS.get(kind, "its local training and its aggregation are its own")
        raise ValueError(
            f"a Flower app can have {', '.join(ALGORITHMS)}, the run has {kind}: {why}. Tune one of these, or write "
            "it for Flower."
        )
    if algorithm.get("local"):
        raise ValueError(
            f"the run keeps {shown(algorithm['local'])} on its clients (`local`): a Flower app sends the whole model. "
            "Tune without `local`."
        )
    if best.get("clients"):
        raise ValueError(
            "each client of the run has values of its own, by its number in the simulation: a device does not know "
            "which number it is. Tune with one that finds values for all clients, such as FedEx or a search."
        )
    if str(model["_target_"]).startswith("__main__."):
        raise ValueError(
            f"the module is a class of a script ({model['_target_']}), which an app cannot import: put it into a "
            "module of its own, and run again."
        )
    for side in ("client", "server"):
        for name, value in best[side].items():
            if not isinstance(value, bool | int | float | str):
                raise ValueError(
                    f"Flower's settings are numbers, texts, true and false, the {side}'s {name!r} is {shown(value)}: "
                    "set it in the module itself."
                )
    if "max_lr" in {group_of(name)[0] for name in best["client"]}:
        raise ValueError(
            "the run has found `max_lr` of a schedule with rates of its own (OneCycleLR, CyclicLR), which are part of "
            "its constructor: write it into the module's configure_optimizers, and tune the rest."
        )


def _simulated(data: dict[str, Any]) -> str:
    """Return how a simulated client comes by the run's own data."""
    lines = "".join(f"    {literal(name)}: {literal(one)},\n" for name, one in data.items())
    return files.SIMULATED.substitute(data=lines)


def _toml(values: Mapping[str, Any]) -> str:
    """Return a TOML table's lines."""
    return "\n".join(f"{_key(name)} = {json.dumps(value)}" for name, value in values.items())


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)


def _count(found: RunData) -> int:
    """Return the number of clients of a run; the table of its federation has a thousand of them at most."""
    sections = (found.settings["data"], found.settings["data"].get("partition") or {})
    told = [one["clients"] for one in sections if isinstance(one, dict) and isinstance(one.get("clients"), int)]
    return int(told[0]) if told else len(found.federation)


def _home(run: Path) -> Path:
    """Return the folder in which a run's command was given."""
    record = run / RUN_RECORD
    if not record.is_file():
        return Path.cwd()
    with reading(record):
        return Path(str(OmegaConf.load(record).hydra.runtime.cwd))


def _absolute(section: Any, home: Path, key: str = "") -> Any:
    """Return a section whose paths begin at the root: an app runs in a folder of Flower's."""
    if isinstance(section, dict):
        return {name: _absolute(one, home, name) for name, one in section.items()}
    if isinstance(section, list):
        return [_absolute(one, home, key) for one in section]
    is_path = isinstance(section, str) and re.search(PATH, f"{key}={section}") and (home / section).exists()
    return str(home / section) if is_path else section


def _roots(*sections: Any) -> set[str]:
    return {target.partition(".")[0] for section in sections for target in targets(section)}


def _modules(home: Path, *sections: Any) -> dict[str, Path]:
    """Return the user's own modules that sections name, each with its file or folder."""
    places = {root: (home / f"{root}.py", home / root) for root in _roots(*sections) - {"lightning_fedhpo"}}
    found = {root: next((one for one in both if one.exists()), None) for root, both in sorted(places.items())}
    return {root: place for root, place in found.items() if place is not None}


def _package(root: str) -> str:
    """Return the distribution that a module comes with."""
    return next(iter(packages_distributions().get(root, ())), root)


def _notes(settings: Mapping[str, Any], data: Any, own: Mapping[str, Path]) -> Iterator[str]:
    """Yield what is other than in the run."""
    if data is None:
        yield "The run was made by a script: say in tuned/data.py how a client loads its examples."
        yield "make_model in tuned/task.py has the arguments that the module saved by save_hyperparameters: look at it."
    else:
        yield "It simulates the run's own data. Before it goes to devices: say in tuned/data.py how they load theirs."
    if own:
        yield f"Copied into it: {', '.join(str(place) for place in own.values())}, without what these import."
    simulated = {name: settings.get(name) or settings["fed"].get(name) for name in ("clients", "devices", "noise")}
    told = simulated.pop("clients") or {}
    clients = str(told.get("_target_", told.get("name", "UniformClients"))).rpartition(".")[2]
    if clients != "UniformClients":
        yield f"The run drew its clients by {clients}; the app draws all alike (server_app.py)."
    for name in (name for name, one in simulated.items() if one):
        yield f"The run's `{name}` was simulated; it is not in the app."
    if settings.get("callbacks") and set(settings["callbacks"]) - {"progress"}:
        yield "The run's own callbacks are not in the app: add them in make_trainer (task.py)."
