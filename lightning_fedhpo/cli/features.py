"""The command ``fedhpo-features``: three searches among feature maps, compared by accuracy and time.

    fedhpo-features cifar10 --path cifar10.npz [--maps 64] [--bins 256 512] [--seeds 0 1 2] [--csv table.csv]
    fedhpo-features imdb --path reviews.jsonl

Each seed draws the maps, the split and the searches' choices. All searches of a seed see the same.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_fedhpo import seeding
from lightning_fedhpo.cli.errors import failed
from lightning_fedhpo.data.hub import read_hub
from lightning_fedhpo.data.image_files import read_image_files
from lightning_fedhpo.data.imdb import read_reviews
from lightning_fedhpo.files.table import Table

if TYPE_CHECKING:
    from lightning_fedhpo.feature_maps.shared_feature_maps import Method

METHODS: tuple[Method, ...] = ("random", "halving", "exponentiated")
"""The sweep comes first: it tells the maps' places."""
SHARES = {"cifar10": (0.8, 0.2), "imdb": (0.5, 0.25)}
"""What trains and what validates; the rest of the examples is tested."""


def images(path: Path | None) -> tuple[Any, Any]:
    """Return photographs as rows of numbers from 0 to 1, and their labels."""
    found, labels = read_hub("uoft-cs/cifar10", "train", 3) if path is None else read_image_files(path, "train", 3)
    return found.reshape(len(found), -1) / np.float32(255), labels


def reviews(path: Path | None) -> tuple[Any, Any]:
    """Return the texts and the labels of the training part."""
    from lightning_fedhpo.feature_maps import Corpus

    found = read_reviews(path, "train")
    return Corpus(found.texts), np.array(found.labels)


def count_first(corpus: Any, bags: Sequence[Any]) -> None:
    """Count the n-grams that any of the bags needs: no search is charged with what all of them share."""
    began = perf_counter()
    for bag in bags:
        for order in range(1, bag.n + 1):
            corpus.counts(order, bag.tokenizer, bag.stop_words, bag.lowercase)
    print(f"counted n-grams in {perf_counter() - began:.0f} s")


def compared(
    name: str, examples: Any, labels: Any, maps: int, bins: int, seed: int, methods: Sequence[Method]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each method: its fits, seconds by the clock and of the processor, accuracies, and place.

    The place is its map's among all maps, by validation accuracy of a model of their own: the sweep tells it.
    """
    from sklearn.linear_model import LogisticRegression, RidgeClassifier

    from lightning_fedhpo.feature_maps import SharedFeatureMaps, bag_maps, fourier_maps

    order = seeding.rng(seed, seeding.SPLIT).permutation(len(labels))
    ends = np.cumsum([round(share * len(labels)) for share in SHARES[name]])
    train, valid, test = np.split(order, ends)
    drawn = fourier_maps(maps, bins, seed) if name == "cifar10" else bag_maps(maps, bins, seed)
    model = RidgeClassifier(alpha=0.5) if name == "cifar10" else LogisticRegression(C=1.0, max_iter=1000)
    if name == "imdb":
        count_first(examples, drawn)
    alone: Any = None
    for method in (one for one in METHODS if one in methods):
        search, began = SharedFeatureMaps(drawn, method, model, random_state=seed), process_time()
        search.fit(examples[train], labels[train], validation=(examples[valid], labels[valid]))
        processor = process_time() - began
        if method == "random":
            alone = np.nanmax([step["scores"] for step in search.history_], axis=0)
        yield {
            "data": name,
            "maps": maps,
            "bins": bins,
            "seed": seed,
            "method": method,
            "fits": len(search.history_),
            "seconds": round(search.seconds_, 1),
            "processor": round(processor, 1),
            "validation": search.score(examples[valid], labels[valid]),
            "test": search.score(examples[test], labels[test]) if len(test) else None,
            "place": None if alone is None else 1 + int((alone > alone[search.best_index_]).sum()),
            "map": search.best_index_,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``fedhpo-features``."""
    parser = argparse.ArgumentParser(prog="fedhpo-features", description="Compare searches among feature maps.")
    parser.add_argument("data", choices=sorted(SHARES))
    parser.add_argument(
        "--path", type=Path, help="images: as for data=cifar10, by default the hub; reviews: as for data=imdb"
    )
    parser.add_argument("--maps", type=int, default=64, help="how many maps are drawn")
    parser.add_argument(
        "--bins", type=int, nargs="+", default=[256], help="numbers of features: powers of two for reviews"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--csv", type=Path, help="write the table here, after every search")
    given = parser.parse_args(arguments)
    table = Table()
    try:
        examples, labels = (images if given.data == "cifar10" else reviews)(given.path)
        for seed in given.seeds:
            for bins in given.bins:
                for row in compared(given.data, examples, labels, given.maps, bins, seed, given.methods):
                    table.append(row)
                    print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                    if given.csv:
                        table.to_csv(given.csv)
    except (ModuleNotFoundError, OSError, ValueError) as error:
        return failed("fedhpo-features", error, str(error))
    print(f"Peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")
    return 0
