"""Whether the name of a score says the opposite of the run's ``mode``."""

from __future__ import annotations

import re

_LARGER = {"acc", "accuracy", "auc", "auprc", "auroc", "bleu", "dice", "f1", "iou", "jaccard", "precision", "r2"}
_LARGER |= {"ndcg", "psnr", "recall", "rouge", "ssim"}
_SMALLER = {"cer", "err", "error", "loss", "losses", "mae", "mape", "mse", "nll", "perplexity", "ppl", "rmse", "wer"}
_TURNED = {"inverse", "minus", "neg", "negative", "negated"}
"""Words that may turn a score around: a name with one of them says nothing."""


def doubtful_mode(monitor: str, mode: str) -> str:
    """Return a warning if a monitor's name contradicts the mode, else nothing.

    >>> doubtful_mode("val/acc5", "min")
    "mode='min' prefers small values of 'val/acc5', but acc is better when larger: set mode='max'."
    >>> doubtful_mode("val_acc", "max"), doubtful_mode("acc_loss", "max"), doubtful_mode("score", "min")
    ('', '', '')
    """
    words = re.split(r"[/_.\s-]+", monitor.lower())
    words += [word.rstrip("0123456789") for word in words]
    larger, smaller = ([word for word in words if word in known] for known in (_LARGER, _SMALLER))
    if _TURNED.intersection(words) or bool(larger) == bool(smaller) or (mode == "max") == bool(larger):
        return ""
    kind, best, right = ("small", "larger", "max") if larger else ("large", "smaller", "min")
    name = (larger or smaller)[0]
    return f"mode={mode!r} prefers {kind} values of {monitor!r}, but {name} is better when {best}: set mode={right!r}."
