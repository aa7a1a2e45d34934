"""Eight maps of Fashion-MNIST's images before a LeNet: two searches with shared weights, and a training for each map.

    python recipes/feature_maps/network.py <folder of the IDX files> [--seeds 0 1 2]

Every training is of the same number of epochs. Seconds are the processor's, of one thread, scoring included.
"""

from __future__ import annotations

import argparse
import csv
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import torch
from lightning.pytorch import Trainer, seed_everything
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from lightning_fedhpo import seeding
from lightning_fedhpo.data.image_files import read_image_files
from lightning_fedhpo.feature_maps import FeatureMapWeights
from lightning_fedhpo.models import LeNet

MAPS = {
    "plain": torch.clone,
    "mirrored": partial(torch.flip, dims=[-1]),
    "turned": partial(torch.rot90, dims=[-2, -1]),
    "bright": torch.sqrt,
    "blurred": partial(functional.avg_pool2d, kernel_size=5, stride=1, padding=2),
    "coarse": lambda x: functional.interpolate(functional.avg_pool2d(x, 4), scale_factor=4),
    "two_tone": lambda x: (x > 0.5).float(),
    "noisy": lambda x: x + 0.3 * torch.randn_like(x),
}
"""The first four lose nothing of an image, the others do."""
FIELDS = ["seed", "method", "map", "epochs", "val_loss", "place", "test_acc", "seconds"]


def tensors(path: Path, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images from 0 to 1 and labels."""
    images, labels = read_image_files(path, split, 1)
    return torch.tensor(images)[:, None] / 255, torch.tensor(labels, dtype=torch.long)


def fitted(weights: FeatureMapWeights, loaders: list[DataLoader[Any]], epochs: int, seed: int) -> dict[str, Any]:
    """Train a LeNet, and return its figures under the best map."""
    seed_everything(seed, verbose=False)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[weights], num_sanity_val_steps=0, **quiet)
    model, began = LeNet(lr=0.05, momentum=0.9), process_time()
    trainer.fit(model, *loaders[:2])
    seconds = process_time() - began
    (valid,) = trainer.validate(model, loaders[1], verbose=False)
    (test,) = trainer.test(model, loaders[2], verbose=False)
    figures = {"val_loss": valid["val_loss"], "test_acc": test["test_acc"], "seconds": seconds}
    return {"seed": seed, "map": weights.best, "epochs": epochs} | figures


def rows(path: Path, seed: int, epochs: int, examples: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each training of the sweep and for each search, with its map's place in the sweep."""
    x, y = tensors(path, "train")
    order = torch.from_numpy(seeding.rng(seed, seeding.SPLIT).permutation(len(y)))
    train, valid = order[:examples], order[examples : examples + examples // 2]
    sets = [TensorDataset(x[train], y[train]), TensorDataset(x[valid], y[valid]), TensorDataset(*tensors(path, "test"))]
    loaders = [DataLoader(sets[0], batch_size=64, shuffle=True), *(DataLoader(one, batch_size=500) for one in sets[1:])]
    sweep = [fitted(FeatureMapWeights({name: MAPS[name]}), loaders, epochs, seed) for name in MAPS]
    ranked = [row["map"] for row in sorted(sweep, key=lambda row: row["val_loss"])]
    found = [{"method": "alone"} | row for row in sweep]
    for method in ("halving", "exponentiated"):
        found.append({"method": method} | fitted(FeatureMapWeights(MAPS, method, seed=seed), loaders, epochs, seed))
    yield from (row | {"place": ranked.index(row["map"]) + 1} for row in found)


def main() -> None:
    """Run all seeds, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--examples", type=int, default=8000, help="training images; half as many validate")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "network.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with given.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for seed in given.seeds:
            for row in rows(given.path, seed, given.epochs, given.examples):
                row = {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
                writer.writerow(row)
                print(*(f"{key}={row[key]}" for key in FIELDS), flush=True)


if __name__ == "__main__":
    main()
