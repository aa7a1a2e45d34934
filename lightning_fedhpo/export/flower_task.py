"""The client of a Flower app: local training with a Lightning Trainer, and what sets the values that were found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from string import Template
from typing import Any

from lightning_fedhpo.binding.param_groups import BETAS, group_of

LIGHTNING = """\
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch import Callback, LightningModule, Trainer
"""

TASK = Template('''\
"""What a client does: it trains the LightningModule with the hyperparameters that were found. Flower is not needed."""

import logging
import warnings
from typing import Any

$imports

# What Lightning says about machine and loaders, for every client anew.
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=PossibleUserWarning)


def make_model() -> LightningModule:
    """Return the module as the run has built it."""
    return $model_call


class Tuned(Callback):
    """Sets a client's hyperparameters before its first step: the module's own optimizers stay."""

    def __init__(self, values: dict[str, Any], server_round: int) -> None:
        self.values, self.server_round = values, server_round

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        values, groups = self.values, [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
$on_start
$methods
$helpers

def make_trainer(*callbacks: Callback, epochs: int = 1) -> Trainer:
    """Return a Trainer for one client, with the run's settings."""
    return Trainer(
        max_epochs=epochs,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
$trainer    )


def train(module: LightningModule, batches: Any, values: dict[str, Any], server_round: int) -> dict[str, float]:
    """Train a client in a round, counted from 1; return what the module has logged."""
$before    trainer = make_trainer(Tuned(values, server_round), epochs=int(values["epochs"]))
    trainer.fit(module, batches)
    return logged(trainer)


def validate(module: LightningModule, batches: Any) -> dict[str, float]:
    """Return what the module logs on a client's validation examples."""
    trainer = make_trainer()
    trainer.validate(module, batches, verbose=False)
    return logged(trainer)


def logged(trainer: Trainer) -> dict[str, float]:
    """Return the figures that a module has logged."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}
''')

RATES = Template("""\
        # The learning rates, as if the module had been built with them.
        own = [group.get("initial_lr", group["lr"]) for group in groups]
$first        factors = {id(group): $factor for group in groups}
$single        for group in groups:
            for key in {"lr", "initial_lr"} & set(group):
                group[key] *= factors[id(group)]
        for config in trainer.lr_scheduler_configs:  # a schedule multiplies rates that it keeps
            for scheduler in (*getattr(config.scheduler, "_schedulers", ()), config.scheduler):
                if isinstance(scheduler, torch.optim.lr_scheduler.OneCycleLR | torch.optim.lr_scheduler.CyclicLR):
                    raise TypeError("this schedule has rates of its own: set them in configure_optimizers")
                if hasattr(scheduler, "base_lrs"):
                    kept = zip(scheduler.base_lrs, scheduler.optimizer.param_groups, strict=True)
                    scheduler.base_lrs = [rate * factors[id(group)] for rate, group in kept]
""")

ROUNDS = """\
        for config in trainer.lr_scheduler_configs:  # schedules go by rounds, not inside a client's training
            if config.reduce_on_plateau:
                raise TypeError("ReduceLROnPlateau goes by the server's scores, which a client does not know")
            every = config.frequency if config.interval == "epoch" else 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # torch wants the optimizer to step before
                for _ in range((self.server_round - 1) // every):
                    config.scheduler.step()
            config.interval = "round"  # at which Lightning steps none
"""

PROX = """\
        self.received = [parameter.detach().clone() for parameter in module.parameters()]
"""

PROX_METHOD = '''
    def on_after_backward(self, trainer: Trainer, module: LightningModule) -> None:
        """FedProx: add mu (w - w_received) to the gradient."""
        mu = self.values["prox_mu"] / trainer.accumulate_grad_batches
        for parameter, received in zip(module.parameters(), self.received, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - received, alpha=mu)
'''

SHARE = '''
def share(groups: list[dict[str, Any]], key: str, value: float) -> None:
    """Set a value in every parameter group; a group that has 0 keeps it, and weight decays keep their ratios."""
    having = [group for group in groups if key in group]
    first = next((group[key] for group in having if group[key]), 0)
    for group in having:
        own = group[key]
        group[key] = value * own / first if first and (key == "weight_decay" or not own) else value

'''

DROPOUT = """\
    nn = torch.nn
    plain = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout
    for layer in module.modules():
        if isinstance(layer, plain):
            layer.p = values["dropout"]
        elif isinstance(layer, nn.MultiheadAttention) or (isinstance(layer, nn.RNNBase) and layer.num_layers > 1):
            layer.dropout = values["dropout"]
"""

TRAINER: dict[str, Any] = {
    "accelerator": "auto", "precision": "32-true", "accumulate_grad_batches": 1, "gradient_clip_val": None,
    "gradient_clip_algorithm": None, "limit_train_batches": 1.0, "deterministic": None, "detect_anomaly": False,
}  # fmt: skip
"""The Trainer's settings that change a client's training, with what they are by themselves."""


def task(model: dict[str, Any], client: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return ``task.py``: the module's class, its Trainer, and the lines that the found names need.

    Args:
        model: The section ``model`` of the run's settings.
        client: The clients' values that were found.
        settings: All settings of the run.
    """
    kinds = {name: _kind(name) for name in client}
    groups = [name for name, kind in kinds.items() if kind == "group"]
    rates = [name for name in groups if group_of(name)[0] == "lr"]
    others = [name for name in groups if name not in rates]
    on_start = _rates(rates, "decay" in client) if rates or client.get("decay") else ""
    on_start += "".join(map(_group, others))
    on_start += ROUNDS * (settings["fed"].get("schedules") == "rounds") + PROX * ("prox_mu" in client)
    before = "".join(_attribute(name) for name, kind in kinds.items() if kind == "attribute")
    before += DROPOUT * ("dropout" in client)
    given = {name: settings["trainer"].get(name, usual) for name, usual in TRAINER.items()}
    chosen = [f"        {name}={literal(one)},\n" for name, one in given.items() if one not in (None, TRAINER[name])]
    imported, call = _model(model)
    uses_torch = "torch." in on_start + before
    text = TASK.substitute(
        imports="import torch\n" * uses_torch + LIGHTNING + imported,
        model_call=call,
        on_start=on_start.rstrip("\n") or "        pass",
        methods=PROX_METHOD * ("prox_mu" in client),
        helpers=SHARE * any(_shared(name) for name in others),
        trainer="".join(chosen),
        before=before,
    )
    return re.sub(r"\n{4,}", "\n\n\n", text)


def _kind(name: str) -> str:
    """Return what a client hyperparameter is: of the loop or the algorithm, an attribute, or the optimizers'."""
    if name in ("epochs", "batch_size", "decay", "prox_mu", "dropout"):
        return name
    return "attribute" if name.startswith(("module.", "hparams.")) else "group"


def _shared(name: str) -> bool:
    key, number = group_of(name)
    return number is None and key not in BETAS


def _rates(names: list[str], falls: bool) -> str:
    """Return the lines that set learning rates, and what schedules keep of them."""
    fallen = ' * (1 - values["decay"]) ** (self.server_round - 1)' if falls else ""
    single = [
        f'        factors[id(groups[{number}])] = values["{name}"] / own[{number}]{fallen}\n'
        for name in names
        if (number := group_of(name)[1]) is not None
    ]
    whole = "lr" in names
    return RATES.substitute(
        first="        first = next(rate for rate in own if rate)  # the groups keep their ratios\n" * whole,
        factor=('values["lr"] / first' if whole else "1.0") + fallen,
        single="".join(single),
    )


def _group(name: str) -> str:
    """Return the lines that set another value of the optimizers' parameter groups."""
    if _shared(name):
        return f'        share(groups, "{name}", values["{name}"])\n'
    key, number = group_of(name)
    which = "groups" if number is None else f"[groups[{number}]]"
    if key not in BETAS:
        return f'        groups[{number}]["{key}"] = values["{name}"]\n'
    pair = [f'values["{name}"]' if place == BETAS[key] else f'group["betas"][{place}]' for place in (0, 1)]
    return f'        for group in {which}:\n            group["betas"] = ({", ".join(pair)})\n'


def _attribute(name: str) -> str:
    """Return the line that sets an attribute by its path."""
    root, *steps = name.split(".")
    if root == "hparams":
        place = "module.hparams" + "".join(f'["{step}"]' for step in steps)
    else:
        place = "module" + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps)
    return f'    {place} = values["{name}"]\n'


def _model(section: dict[str, Any]) -> tuple[str, str]:
    """Return the import of the module's class, and the call that builds it."""
    arguments = {name: one for name, one in section.items() if name != "_target_"}
    if any(name.startswith("_") for name in arguments) or list(targets(arguments)):  # objects inside: Hydra builds them
        return "from hydra.utils import instantiate", f'instantiate({literal(section)}, _convert_="all")'
    module, _, name = str(section["_target_"]).rpartition(".")
    return (
        f"from {module} import {name}",
        f"{name}({', '.join(f'{key}={literal(one)}' for key, one in arguments.items())})",
    )


def targets(section: Any) -> Iterator[str]:
    """Yield the classes and functions that a section of settings names."""
    if isinstance(section, Mapping) and "_target_" in section:
        yield str(section["_target_"])
    for one in section.values() if isinstance(section, Mapping) else section if isinstance(section, list) else ():
        yield from targets(one)


def literal(value: Any) -> str:
    """Return a plain value as code.

    >>> literal({"size": 3, "names": ["a", None]})
    '{"size": 3, "names": ["a", None]}'
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(name)}: {literal(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
