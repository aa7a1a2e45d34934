"""Feature maps of a network's inputs, chosen with shared weights while an ordinary Trainer trains.

Khodak et al., "Weight-Sharing Beyond Neural Architecture Search", 2020, section 3.1, with a LightningModule in place of
the linear model. Deviations: the model is not trained anew between two steps, it goes on; every batch draws its
examples' maps anew; after the last step the most likely map alone goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import seeding
from lightning_fedhpo._lightning import AnyTrainer
from lightning_fedhpo.arguments import check_kinds, whole
from lightning_fedhpo.arms.monitor_mode import doubtful_mode
from lightning_fedhpo.feature_maps.map_inputs import Key, Map, check_alike, inputs_of, mapped, mixture, with_inputs
from lightning_fedhpo.feature_maps.map_steps import STEPS, Numbers, exponentiated, halved
from lightning_fedhpo.feature_maps.validation_pass import copied_metrics, validated
from lightning_fedhpo.setup.checks import check_logged
from lightning_fedhpo.tuners.exponentiated_gradient import Distribution, entropy

_HOOK = "on_after_batch_transfer"


class FeatureMapWeights(Callback):
    """Choose one of several maps of the inputs while a Trainer trains a module.

    Each training example gets a map by the maps' probabilities, the module trains on the mixture, and after a
    validation every map is scored with the module as it is: by its ``validation_step``, over the validation batches
    under the map. Then the probabilities take a step. When one map is left, training goes on with it. The Trainer's own
    validation, ``test`` and ``predict`` are under the best map so far, which is the first one before any score.

    A callback cannot replace a batch. Lightning's place for that is the hook ``on_after_batch_transfer`` of the module
    or data module, where batches are on their device: the callback puts itself behind it while the Trainer runs.

    Args:
        maps: Functions of a stack of inputs, which return as many examples: names and functions, or functions alone,
            whose names are ``"0"``, ``"1"``. All give examples of one shape and type. They may draw random numbers.
        method: ``"halving"``: the better half goes on, ceil(log2 maps) steps. ``"exponentiated"``: better maps become
            more likely, five steps, after which the most likely one goes on alone.
        monitor: The score, among what ``validation_step`` logs or returns. nan is the worst.
        mode: Which scores are better.
        every: Validations between two steps; a Trainer validates once an epoch by default.
        key: Where a batch has its inputs, if it is not a tensor: the place in a list or tuple, or the key of a dict.
        seed: Which example gets which map, and what random maps draw in training and scores, are functions of it.

    Attributes:
        maps: The functions, by name.
        probabilities: The present probabilities, by name.
        history: A dict for each map and step: ``epoch``, ``map``, the ``probability`` that it was trained with, and
            its ``score``.

    Example:
        >>> import torch
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from lightning_fedhpo.testing import quiet_trainer, toy_tensors, ToyModule
        >>> weights = FeatureMapWeights({"plain": torch.clone, "blank": torch.zeros_like, "signs": torch.sign})
        >>> loader = DataLoader(TensorDataset(*toy_tensors()), batch_size=8)
        >>> quiet_trainer(3, weights).fit(ToyModule(), loader, loader)
        >>> weights.best, len(weights.history)
        ('plain', 5)
    """

    def __init__(
        self,
        maps: Mapping[str, Map] | Sequence[Map],
        method: Literal["halving", "exponentiated"] = "halving",
        monitor: str = "val_loss",
        mode: Literal["min", "max"] = "min",
        *,
        every: int = 1,
        key: Key = 0,
        seed: int = 0,
    ) -> None:
        check_kinds(FeatureMapWeights, locals())
        named = maps if isinstance(maps, Mapping) else {str(place): one for place, one in enumerate(maps)}
        self.maps: dict[str, Map] = dict(named)
        if not self.maps:
            raise ValueError("there must be at least one map, got none.")
        for name, one in self.maps.items():
            if not isinstance(name, str) or not callable(one):
                raise TypeError(f"`maps` must be functions by name, got {one!r} under {name!r}.")
        if doubt := doubtful_mode(monitor, mode):
            rank_zero_warn(doubt)
        self.method, self.monitor, self.mode, self.key = method, monitor, mode, key
        self.every, self.seed = whole("every", every), whole("seed", seed, low=0, high=seeding.MOST_SEED)
        self.history: list[dict[str, Any]] = []
        self._p: Numbers = np.full(len(self.maps), 1 / len(self.maps))
        self._belief = Distribution.uniform(len(self.maps))
        self._batches = self._validations = 0
        self._stage = ""
        self._scored: str | None = None  # the map of the present validation, where it is not the best one
        self._owner: LightningModule | LightningDataModule | None = None

    @property
    def probabilities(self) -> dict[str, float]:
        """The present probabilities, by name."""
        return dict(zip(self.maps, self._p.tolist(), strict=True))

    @property
    def best(self) -> str:
        """The name of the most likely map; of equally likely ones that with the best last score."""
        sign = 1 if self.mode == "max" else -1
        last = {row["map"]: sign * row["score"] if math.isfinite(row["score"]) else -math.inf for row in self.history}
        return max(self.maps, key=lambda name: (self.probabilities[name], last.get(name, -math.inf)))

    @property
    def best_map(self) -> Map:
        """The function that is called :attr:`best`."""
        return self.maps[self.best]

    @property
    def finished(self) -> bool:
        """Whether one map is left."""
        return bool(np.count_nonzero(self._p) == 1)

    @property
    def steps(self) -> int:
        """The number of steps that the search takes."""
        count = len(self.maps)
        return math.ceil(math.log2(count)) if self.method == "halving" or count == 1 else STEPS

    # ------------------------------------------------------------------ batches

    def _on_batch(self, trainer: AnyTrainer, batch: Any) -> Any:
        inputs = inputs_of(batch, self.key)
        if trainer.training:
            return with_inputs(batch, self.key, self._mixture(inputs, trainer.global_rank))
        if self._stage != "fit" and not (self.history or self.finished):
            raise MisconfigurationException(
                "no map has been chosen yet: call `trainer.fit` first, or load the callback's state from a checkpoint, "
                "by `ckpt_path` or `load_state_dict`."
            )
        if trainer.sanity_checking:
            check_alike({name: mapped(self.maps, name, inputs) for name in self.maps})
        return with_inputs(batch, self.key, mapped(self.maps, self._scored or self.best, inputs))

    def _mixture(self, inputs: Tensor, rank: int) -> Tensor:
        """Return the examples in their order, each under a map drawn for it."""
        where = {"round": self._batches, "client": rank}
        self._batches += 1
        drawn = seeding.rng(self.seed, seeding.MAPS, **where).choice(len(self.maps), size=len(inputs), p=self._p)
        with seeding.preserved():
            seeding.seed_user_code(seeding.key(self.seed, seeding.MAPS, **where))
            return mixture(self.maps, inputs, drawn)

    # ------------------------------------------------------------------ steps

    def _scores(self, trainer: AnyTrainer, module: LightningModule) -> Numbers:
        """Return the score of every map that is left, nan for the others."""
        names, scores = list(self.maps), np.full(len(self.maps), np.nan)
        with seeding.preserved(), copied_metrics(module):
            for place in np.flatnonzero(self._p):
                self._scored = names[place]
                seeding.seed_user_code(seeding.key(self.seed, seeding.MAPS, round=self._validations, arm=1))
                figures = validated(trainer, module, lambda batch: len(inputs_of(batch, self.key)))
                check_logged(figures, self.monitor)
                scores[place] = figures[self.monitor]
        self._scored = None
        if trainer.world_size > 1:
            of_all = trainer.strategy.reduce(torch.from_numpy(scores).to(module.device), reduce_op="mean")
            scores = of_all.cpu().numpy()
        return scores

    def _step(self, scores: Numbers) -> None:
        if self.method == "halving":
            self._p = halved(self._p, scores)
            return
        self._p = exponentiated(self._belief, scores)
        if self._validations // self.every == self.steps:
            self._p = np.eye(len(self.maps))[list(self.maps).index(self.best)]

    # ------------------------------------------------------------------ Lightning's hooks

    def setup(self, trainer: AnyTrainer, pl_module: LightningModule, stage: str) -> None:
        """Put the maps behind the hook that hands batches to the module."""
        data, self._stage = trainer.datamodule, stage
        of_module = private.is_overridden(_HOOK, pl_module) and not private.is_overridden(_HOOK, data)
        self._owner = pl_module if data is None or of_module else data
        hook = getattr(self._owner, _HOOK)

        def under_maps(batch: Any, dataloader_idx: int) -> Any:
            return self._on_batch(trainer, hook(batch, dataloader_idx))

        setattr(self._owner, _HOOK, under_maps)

    def teardown(self, trainer: AnyTrainer, pl_module: LightningModule, stage: str) -> None:
        """Take the maps off again."""
        if self._owner is not None:
            delattr(self._owner, _HOOK)
            self._owner = None

    def on_exception(self, trainer: AnyTrainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take the maps off again."""
        self._scored = None
        self.teardown(trainer, pl_module, self._stage)

    def on_fit_start(self, trainer: AnyTrainer, pl_module: LightningModule) -> None:
        """Refuse a Trainer that does not validate."""
        if not self.finished and not trainer.enable_validation:
            raise MisconfigurationException(
                "FeatureMapWeights scores maps by the module's `validation_step`, but this run does not validate: give "
                "`fit` a validation loader and the module a `validation_step`, or one map alone."
            )

    def on_validation_end(self, trainer: AnyTrainer, pl_module: LightningModule) -> None:
        """Score the maps that are left, and take a step; in the sanity check only try whether that works."""
        if self._stage != "fit" or self.finished:
            return
        if trainer.sanity_checking:
            self._scores(trainer, pl_module)
            return
        self._validations += 1
        if self._validations % self.every:
            return
        scores = self._scores(trainer, pl_module)
        for name, p, score in zip(self.maps, self._p.tolist(), scores.tolist(), strict=True):
            if p:
                row = {"epoch": trainer.current_epoch, "map": name, "probability": p, "score": score}
                self.history.append(row)
        self._step(scores if self.mode == "max" else -scores)

    def on_train_epoch_end(self, trainer: AnyTrainer, pl_module: LightningModule) -> None:
        """Log the probabilities and their entropy."""
        figures = {f"feature_maps/prob/{name}": p for name, p in self.probabilities.items()}
        figures["feature_maps/entropy"] = entropy(np.log(self._p[self._p > 0]))
        pl_module.log_dict(figures, sync_dist=True)

    def on_train_end(self, trainer: AnyTrainer, pl_module: LightningModule) -> None:
        """Warn of a search that is not over."""
        if not self.finished and not trainer.fast_dev_run:
            rank_zero_warn(
                f"the search among {len(self.maps)} maps has taken {self._validations // self.every} of its "
                f"{self.steps} steps: {self.best!r} is the best map so far. Train longer, or lower `every`."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return all that further training depends on."""
        return {
            "maps": list(self.maps),
            "probabilities": self._p.tolist(),
            "log_probabilities": self._belief.z.tolist(),
            "batches": self._batches,
            "validations": self._validations,
            "history": [dict(row) for row in self.history],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint of the same maps."""
        if state_dict["maps"] != list(self.maps):
            raise ValueError(
                f"the checkpoint's maps must be those of the callback, got {state_dict['maps']} and {list(self.maps)}: "
                "give the same maps in the same order."
            )
        self._p = np.array(state_dict["probabilities"])
        self._belief = Distribution(np.array(state_dict["log_probabilities"]))
        self._batches, self._validations = state_dict["batches"], state_dict["validations"]
        self.history = [dict(row) for row in state_dict["history"]]
