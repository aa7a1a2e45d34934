"""Image data sets with natural clients, read from local files."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from lightning_fedhpo.data.assignment import check_seed
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.partition import Natural


def femnist(
    path: str | PathLike[str],
    *,
    invert: bool = False,
    min_size: int = 1,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    batch_size: int | None = None,
    eval_batch_size: int | None = None,
    server_fraction: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """Read handwritten characters, one client for each writer (LEAF's FEMNIST, or files made like it).

    Args:
        path: An ``.npz`` file of ``x`` (images, uint8, n x 28 x 28), ``y`` (labels from 0 to 61) and ``writer`` (an
            owner for each image).
        invert: Turn light and dark around: where the file has dark ink on white, inputs are zero but for the ink, and
            models train faster.
        min_size: Writers with fewer images are left out.
        fractions: A client's training, validation and test shares.
        batch_size: The local batch size.
        eval_batch_size: The batch size of validation and test.
        server_fraction: The part of the training images that no client has, for the server's validation.
        seed: Draws the splits.

    Returns:
        Clients of pairs ``(x, y)``: images of one channel between 0 and 1.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "small.npz"
        >>> np.savez(file, x=np.zeros((6, 28, 28), "uint8"), y=np.arange(6), writer=[0, 0, 0, 1, 1, 1])
        >>> len(femnist(file))
        2
    """
    check_seed(seed)  # before the file is read, which takes a while
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be an .npz file with x, y and writer; there is no file at {path}.")
    with np.load(path) as file:
        missing = {"x", "y", "writer"} - set(file.files)
        if missing:
            raise ValueError(
                f"{path.name} must hold the arrays x, y and writer, {', '.join(sorted(missing))} is not among "
                f"{', '.join(file.files)}."
            )
        x, y, writer = file["x"], file["y"], file["writer"]
    images = torch.from_numpy(np.ascontiguousarray(x)).unsqueeze(1).float().div_(255.0)
    if invert:
        images = 1.0 - images
    return FederatedData(
        (images, torch.from_numpy(y.astype(np.int64))),
        Natural(writer, min_size=min_size, below="drop"),
        fractions=fractions,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        server_fraction=server_fraction,
        seed=seed,
    )
