"""Every way of logging: numbers, tensors and metric objects, on steps and epochs, returned or logged."""

from __future__ import annotations

from typing import Any

import torch
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from tests.modules.zoo.base import Case, Plain
from tests.modules.zoo.optimizers import plateau


class Metrics(Plain):
    """Metric objects as attributes, updated and logged in every way there is."""

    def __init__(self) -> None:
        super().__init__()
        self.train_acc = MulticlassAccuracy(3, average="micro")
        self.val_acc = MulticlassAccuracy(3, average="micro")
        self.val_mean = MeanMetric()
        self.several = MetricCollection({"f1": MulticlassF1Score(3), "acc": MulticlassAccuracy(3)}, prefix="val/")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        self.train_acc(self(x), y)
        self.log("train_acc", self.train_acc, on_step=True, on_epoch=True, prog_bar=True)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        self.val_acc.update(logits, y)
        self.val_mean.update(self.loss(batch), len(y))
        self.several.update(logits, y)
        self.log("val_loss", self.val_mean)
        self.log("val_acc", self.val_acc, on_step=False, on_epoch=True)
        self.log_dict(self.several)
        self.log("val_forked", self.loss(batch), on_step=True, on_epoch=True)


class ComputedByHand(Metrics):
    """Computes and resets its metrics in the hook at the end of an epoch."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.val_acc.update(self(x), y)
        self.several.update(self(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", 1 - self.val_acc.compute())
        self.log_dict(self.several.compute())
        self.val_acc.reset()
        self.several.reset()


class Reductions(Plain):
    """Every reduction, numbers as they come, and names by the dozen."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = self.loss(batch)
        self.log("val_loss", loss.item())
        self.log_dict({"val/loss": loss, "val/half": loss / 2}, batch_size=2)
        for reduction in ("mean", "sum", "min", "max", torch.max, sum):
            name = reduction if isinstance(reduction, str) else f"fn_{reduction.__name__}"
            self.log(f"val/{name}", loss + batch_idx, reduce_fx=reduction)
        self.log("val/one_element", loss.reshape(1))
        self.log("val/count", batch_idx)
        self.log("val/flag", loss > 0)
        self.log("val/step_only", loss, on_step=True, on_epoch=False)


class OwnLog(Plain):
    """Overrides `log` itself, and reads what it has logged from the Trainer in the hooks at the end of an epoch."""

    def log(self, name: str, value: Any, **options: Any) -> None:
        super().log(f"my/{name}" if name != "val_loss" else name, value, **options)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))
        self.log("other", self.loss(batch) * 2, on_step=True, on_epoch=True)
        self.log("most", self.loss(batch), reduce_fx="max")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        assert self.trainer.callback_metrics["my/loss"] > 0

    def on_validation_epoch_end(self) -> None:
        self.log("twice", 2 * self.trainer.callback_metrics["val_loss"])


class Returned(Plain):
    """Returns its score instead of logging it."""

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return {"val_loss": self.loss(batch), "batch": batch_idx}


class MetricsWatched(Metrics):
    """Has metric objects, and a schedule that validates in the middle of training."""

    def configure_optimizers(self) -> Any:
        return plateau(self, "val_loss")


class Unlisted(Metric):
    """A metric of the author's own, with a list for a state."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("losses", default=[], dist_reduce_fx="cat")

    def update(self, loss: torch.Tensor) -> None:
        self.losses.append(loss.detach())

    def compute(self) -> torch.Tensor:
        return torch.stack(self.losses).median()


class OwnMetric(Plain):
    """Metrics of its own, kept in a dict that torch does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.median = Unlisted()
        self.hidden = {"mean": MeanMetric()}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = self.loss(batch)
        self.median(loss)
        self.hidden["mean"](loss)
        self.log("val_loss", self.hidden["mean"], metric_attribute="hidden")
        self.log("val_median", self.median)


CASES = {
    "computed_by_hand": Case(ComputedByHand, bare=True),
    "reductions": Case(Reductions, bare=True),
    "own_log": Case(OwnLog),
    "metrics_watched": Case(MetricsWatched, validates=True, epochs=4),
    "returned": Case(Returned, bare=True),
    "own_metric": Case(OwnMetric, bare=True),
}
