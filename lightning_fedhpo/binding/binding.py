"""The binding of client hyperparameters: each is set on the object that uses it, and read back from it.

A name reaches, in this order: the local loop (``epochs``, ``batch_size``, and ``decay``, by which the learning rate
falls over rounds), the algorithm (``prox_mu``), the optimizers' parameter groups (``lr``, ``momentum``,
``weight_decay``; ``beta1`` and ``beta2`` are the two of ``betas``), the dropout layers (``dropout``), or an attribute
by path (``module.head.scale``, ``hparams.label_smoothing``). A name that reaches nothing is an error that lists what
there is.

If an optimizer has several parameter groups, or the module several optimizers, the first group whose author's value is
not zero gets the value. The other groups keep their author's ratio to it in ``lr``, ``max_lr`` and ``weight_decay``,
and get the same value of everything else. A group whose own value is zero keeps zero, so biases without weight decay
stay without. If all are zero, all are set. ``lr.1`` sets only the second group, counted over all optimizers in order,
and takes precedence over ``lr``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from lightning_fedhpo.arguments import WrongSettings, did_you_mean, is_number, number
from lightning_fedhpo.binding import lr_schedules
from lightning_fedhpo.binding.attributes import (
    Target,
    attribute_target,
    count,
    dropout_target,
    dropouts,
    setting_target,
)
from lightning_fedhpo.binding.optimizer_reset import LocalOptimizers
from lightning_fedhpo.binding.other_names import listed, names_of_value
from lightning_fedhpo.binding.param_groups import BETAS, checked, group_of, groups_with_shares
from lightning_fedhpo.types import Config

if TYPE_CHECKING:
    from lightning_fedhpo.arms.arm import Arm

LOOP = ("epochs", "batch_size")
DECAY = "decay"
"""The hyperparameter by which the local learning rate falls over an arm's rounds: ``lr_t = lr * (1 - decay)**t``."""
RATES = ("lr", "max_lr")
PAST = "past rounds"
"""In a configuration of a round: the scores behind the arm, where schedules go by rounds."""


@dataclass
class LocalSettings:
    """What the local loop and the algorithm take for one job."""

    epochs: int = 1
    batch_size: int = 32
    algorithm: dict[str, float] = field(default_factory=dict)
    decay: float = 0.0


class Binding:
    """Connects hyperparameter names with a module, its optimizers and the local loop, for a whole run.

    ``settings`` are the local loop's own values, which are also the defaults.
    """

    def __init__(
        self, module: nn.Module, optimizers: LocalOptimizers, settings: LocalSettings, names: Iterable[str]
    ) -> None:
        names = list(names)
        if DECAY in names and not {group_of(name)[0] for name in names} & set(RATES):
            names.append("max_lr" if lr_schedules.highest_rate(optimizers.schedulers) else "lr")
        self.settings = settings
        self._local = optimizers
        self._optimizers = optimizers.optimizers
        self._schedulers = optimizers.schedulers
        self._groups = optimizers.own
        self._module = module
        with WrongSettings() as wrong:
            found = {name: wrong.attempt(self._resolve, name) for name in names}
        self._targets = {name: target for name, target in found.items() if target is not None}
        self._order = sorted(self._targets, key=lambda name: group_of(name)[1] is not None)  # one group's goes over all
        self._original = {name: target.read() for name, target in self._targets.items()}
        rates = [name for name in names if group_of(name)[0] == "lr" and name not in settings.algorithm]
        self._moved = {name: self._rate(*group_of(name)) for name in rates}
        reported = [*LOOP, *settings.algorithm, *(("lr",) if any("lr" in group for group in self._flat()) else ())]
        self._reported = {name: self._reader(name) for name in reported if name not in self._targets}
        self._own_settings = {"epochs": settings.epochs, "batch_size": settings.batch_size, **settings.algorithm}

    @property
    def names(self) -> list[str]:
        """The bound names."""
        return list(self._targets)

    def original(self, name: str) -> Any:
        """Return the value that the module's author set."""
        return self._original[name]

    @property
    def tunable(self) -> dict[str, Target]:
        """The names that can be tuned, with their targets. Other attributes of the module are tuned by their path."""
        groups, found = self._flat(), dict(self._targets)
        values = {key: {group[key] for group in groups if is_number(group.get(key))} for key in sorted(self._keys)}
        apart = [key for key, several in values.items() if len(several) > 1]
        for name in [*self._known, *(f"{key}.{n}" for key in apart for n, group in enumerate(groups) if key in group)]:
            with suppress(ValueError):  # a schedule writes over it
                found.setdefault(name, self._resolve(name))
        return found

    @property
    def by_rounds(self) -> bool:
        """Whether schedules step once a round, not inside a job."""
        return self._local.rounds is not None

    def in_round(self, config: Config, arm: Arm) -> Config:
        """Return a configuration with its learning rates as they are after the rounds behind an arm."""
        if decay := arm.rounds and config.get(DECAY, 0.0):
            rates = [name for name in self._targets if group_of(name)[0] in RATES]
            own = {name: config.get(name, self._original[name]) for name in rates}
            fallen = {name: lr_schedules.decayed(rate, decay, arm.rounds) for name, rate in own.items()}
            config = {**config, **fallen}
        return {**config, PAST: self._local.past(arm.scores)} if self.by_rounds else config

    @contextmanager
    def rates_of(self, config: Config, arm: Arm) -> Iterator[None]:
        """Put an arm's learning rates of its present round into the optimizers for a while."""
        try:
            self.apply(self.in_round(config, arm))
            yield
        finally:
            self.restore()

    def moved_rates(self, config: Config, arm: Arm) -> dict[str, float]:
        """Return an arm's learning rates of its present round by group, as columns, if rounds move them."""
        if not (self.by_rounds or DECAY in config):
            return {}
        with self.rates_of(config, arm):
            if "lr" in self.settings.algorithm:  # the algorithm sets the groups' itself
                return {"rate/lr": self.settings.algorithm["lr"]}
            rates = [float(group["lr"]) for one in self._optimizers for group in one.param_groups if "lr" in group]
        return {f"rate/lr.{number}" if number else "rate/lr": rate for number, rate in enumerate(rates)}

    def apply(self, config: Config) -> dict[str, Any]:
        """Rewind the optimizers, set every value, and return the values in force, read back.

        A bound name that is left out has the module's own value. Local loop, algorithm and learning rate are returned
        also if nobody tunes them.
        """
        self._local.rewind()
        used = {}
        for name in self._order:
            target = self._targets[name]
            if name in config:
                target.write(config[name])
            elif target.restore is not None:
                target.restore()
            used[name] = held = target.read()
            if name in config and held is not config[name] and held != target.rounded(config[name]):
                raise ValueError(
                    f"hyperparameter {name!r} was set to {config[name]!r}, but {target.where} holds {held!r}: it would "
                    "not take effect. Bind another name, or make the attribute keep what is assigned to it."
                )
        if PAST in config:
            start = tuple((name, repr(value)) for name, value in config.items() if name != PAST)
            self._local.go_to(config[PAST], start)
            used |= {name: read() for name, read in self._moved.items()}
        return used | {name: read() for name, read in self._reported.items()}

    def with_settings(self, config: Config) -> dict[str, Any]:
        """Return a configuration with the settings of local loop and algorithm that it leaves out."""
        return {**config, **{name: own for name, own in self._own_settings.items() if name not in config}}

    @property
    def of_module(self) -> dict[str, Target]:
        """The targets that the module itself reads, by name."""
        return {name: target for name, target in self._targets.items() if target.assign is not None}

    def restore(self) -> None:
        """Put everything back to what the module's author set."""
        self.apply({})

    def _flat(self) -> list[dict[str, Any]]:
        return [group for groups in self._groups for group in groups]

    def _rate(self, name: str, number: int | None) -> Callable[[], float]:
        groups = groups_with_shares(self._optimizers, self._groups, name, number)
        reference = next(group for group, share in groups if share == 1.0)
        return lambda: float(reference["lr"])

    def _reader(self, name: str) -> Callable[[], Any]:
        if name == "lr" and name not in self.settings.algorithm:
            return self._rate(name, None)
        return self._resolve(name).read

    def _resolve(self, name: str) -> Target:
        if name in LOOP:
            return setting_target(vars(self.settings), name, "the local loop", partial(count, name))
        if name == DECAY:
            check = partial(number, DECAY, low=0, below=1, why="lr_t = lr * (1 - decay)**t")
            return setting_target(vars(self.settings), name, "the local loop", check)
        if name in self.settings.algorithm:
            return setting_target(self.settings.algorithm, name, "the algorithm")
        if name.startswith("self."):
            raise ValueError(self._unknown_name_text(name))
        target = self._group_target(name) or (dropout_target(self._module) if name == "dropout" else None)
        is_path = name.startswith(("module.", "hparams.")) or group_of(name)[1] is None
        target = target or (attribute_target(self._module, name) if "." in name and is_path else None)
        if target is None:
            raise ValueError(self._unknown_name_text(name))
        return target

    @property
    def _keys(self) -> set[str]:
        return {key for groups in self._groups for group in groups for key in group} - {"initial_lr"}

    @property
    def _known(self) -> list[str]:
        keys = self._keys
        names = [*LOOP, DECAY, *self.settings.algorithm, *sorted(keys), *(BETAS if "betas" in keys else ())]
        return names + (["dropout"] if dropouts(self._module) else [])

    def _unknown_name_text(self, name: str) -> str:
        names = self._known
        reason = self._held_elsewhere(name) or did_you_mean(name, names)
        if not self._keys:
            reason = " The module has no optimizer: its `configure_optimizers` returned none."
        if name == "dropout":
            reason = " The module has no dropout layer; for a functional dropout bind its attribute by path."
        return (
            f"hyperparameter {name!r} reaches nothing in this run.{reason} There are: {', '.join(names)}; one "
            f"optimizer group's, as `lr.0`, of {len(self._flat())}; and any attribute by path, as `module.<attribute>` "
            "or `hparams.<name>`."
        )

    def _held_elsewhere(self, name: str) -> str:
        """Say where the module has an attribute, or one of its ``hparams``, of this name."""
        last, hparams = name.removeprefix("self.").removeprefix("hparams."), getattr(self._module, "hparams", {})
        others = self.used_as(f"hparams.{last}", hparams[last]) if last in hparams else []
        if not others and self._has_attribute(last):
            return f" Did you mean `module.{last}`?"
        return f" Tune {listed(others or [f'hparams.{last}'])} for the module's `hparams.{last}`." * (last in hparams)

    def _has_attribute(self, name: str) -> bool:
        return name in {*vars(self._module), *(buffer for buffer, _ in self._module.named_buffers(recurse=False))}

    def used_as(self, path: str, value: Any) -> list[str]:
        """Return other names by which the value of an attribute is tuned where it is used."""
        settings = [*LOOP, *self.settings.algorithm]
        return names_of_value(self._module, self._flat(), settings, path.rpartition(".")[2], value)

    def without_effect(self, name: str, values: Sequence[Any]) -> str:
        """Return what to do about a hyperparameter that takes no effect."""
        if "." not in name or group_of(name)[1] is not None:
            return "Something overwrites it, or it has none beside the other values: leave it out of the space."
        others, last = self.used_as(name, self._original[name]), name.partition(".")[2]
        if others:
            return f"The module reads it once, when it is built; what is used is {listed(others)}: tune that name."
        copied = name == f"hparams.{last}" and self._has_attribute(last)
        own = f" If it uses `module.{last}`, tune that name." if copied else ""
        sweep = ",".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values)
        return (
            f"The module reads it only when it is built, or overwrites it.{own} A federated model cannot change its "
            f"shape during a run: compare such values by a run for each, as with `fedhpo -m model.{last}={sweep}`."
        )

    def _group_target(self, name: str) -> Target | None:
        general, group_number = group_of(name)
        key = "betas" if general in BETAS else general
        highest = lr_schedules.highest_rate(self._schedulers) if name == "max_lr" else None
        if highest is not None:
            write, read = highest
            return Target(lambda value: write(checked(name, value)), read, "the schedule's highest learning rate")
        groups = groups_with_shares(self._optimizers, self._groups, general, group_number)
        if not groups:
            return None
        lr_schedules.check_not_cycled(key, general, self._schedulers)
        if general == "lr" and self._schedulers:
            base, read = lr_schedules.base_rate(groups, self._schedulers)
            return Target(lambda value: base(checked(name, value)), read, "the schedulers' base learning rate")
        reference = next(group for group, share in groups if share == 1.0)
        where = f"the optimizer's {key!r}" + ("" if group_number is None else f" in group {group_number}")
        at = BETAS.get(general)

        def write_key(value: Any) -> None:
            value = checked(general, value)
            for group, share in groups:
                own = value if share == 1.0 else value * share  # a value that is no number has no other share
                group[key] = own if at is None else tuple(own if at == n else beta for n, beta in enumerate(group[key]))

        return Target(write_key, lambda: reference[key] if at is None else reference[key][at], where)
