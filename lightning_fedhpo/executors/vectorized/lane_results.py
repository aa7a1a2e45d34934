"""What comes back from lanes when the jobs of a wave are over: every figure of every job, in one transfer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightning_fedhpo.executors.vectorized.programs import Programs

Columns = Iterator[NDArray[Any]]
"""Figures of all jobs, one after another."""


def read(rows: Sequence[Tensor], count: int, dtype: torch.dtype) -> Columns:
    """Return the first numbers of tensors on a device.

    >>> [column.tolist() for column in read([torch.tensor([1.0, 9.0]), torch.tensor([True, False])], 1, torch.float)]
    [[1.0], [1.0]]
    """
    if not rows:
        return iter(())
    return iter(torch.stack([row[:count].to(dtype) for row in rows]).cpu().double().numpy())


def finite_rows(tensors: Sequence[Tensor]) -> Tensor:
    """Return for each row whether all tensors are finite there."""
    norms = [torch.linalg.vector_norm(tensor.reshape(len(tensor), -1), dim=1) for tensor in tensors]
    return torch.stack(norms).sum(0).isfinite()


def score_means(programs: Programs, columns: Columns, examples: Sequence[int]) -> dict[str, list[float]]:
    """Return the means of what validation logs, nan for who has no validation examples; sums are read next."""
    counts = np.array(examples, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return {name: (next(columns) / counts).tolist() for name in programs.logs["validation"]}


def logged_means(programs: Programs, columns: Columns, examples: Sequence[float]) -> dict[str, list[float]]:
    """Return what training logs; sums, and then the values of the last batches, are read next."""
    counts, found = np.array(examples, dtype=np.float64), dict[str, list[float]]()
    means = {name: (next(columns) / counts).tolist() for name in programs.logs["training"]}
    latest = {name: next(columns).tolist() for name in programs.last_too}
    for name, column in means.items():
        found[name] = column
        if name in latest:
            found |= {f"{name}_epoch": column, f"{name}_step": latest[name]}
    return found


def of_job(values: Mapping[str, Sequence[float]], place: int) -> dict[str, float]:
    """Return a job's figures."""
    return {name: column[place] for name, column in values.items()}
