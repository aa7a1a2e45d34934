"""Images by domain, a client for each: PACS, Office-Home, DomainNet.

Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017; Venkateswara et al., "Deep Hashing Network for
Unsupervised Domain Adaptation", CVPR 2017; Peng et al., "Moment Matching for Multi-Source Domain Adaptation", ICCV
2019. FedPop trains on them at 224 x 224 pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from lightning_fedhpo.data.decoded_images import Files, ImageSet, check_images, decoded, image_files
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.hub import TableImages, image_columns, load_table, texts_of
from lightning_fedhpo.data.partition import Partition
from lightning_fedhpo.files.reading import reading_data

PACS = ("art_painting", "cartoon", "photo", "sketch")
OFFICE_HOME = ("Art", "Clipart", "Product", "Real World")
DOMAIN_NET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def pacs(
    path: str | PathLike[str] | None,
    partition: Partition | None = None,
    *,
    size: int | None = 224,
    channels: int = 3,
    transform: Callable[[Any], Any] | None = None,
    **more: Any,
) -> FederatedData:
    """Read PACS: 9,991 images of 7 classes in 4 domains, art paintings, cartoons, photos and sketches.

    Args:
        path: A folder with ``art_painting/<class>/``, ``cartoon/``, ``photo/`` and ``sketch/``, or None for the Hugging
            Face hub.
        partition: Shares the images out anew; by default a domain is a client.
        size: Height and width that images are resized to. Without it they must all be of one size.
        channels: 3, or 1 for grey.
        transform: Makes an input of a PIL image, such as an augmentation, in place of the conversion to a tensor.
        more: Further arguments of `FederatedData`.
    """
    check_images(pacs, locals())
    parts = _on_hub("flwrlabs/pacs", ["train"]) if path is None else _in_folders("PACS", Path(path), PACS)
    return FederatedData(decoded(parts, channels, size, transform), partition, **more)


def office_home(
    path: str | PathLike[str] | None,
    partition: Partition | None = None,
    *,
    size: int | None = 224,
    channels: int = 3,
    transform: Callable[[Any], Any] | None = None,
    **more: Any,
) -> FederatedData:
    """Read Office-Home: 15,588 images of 65 classes of things in 4 domains.

    `path` is a folder with ``Art/<class>/``, ``Clipart/``, ``Product/`` and ``Real World/``, or None for the Hugging
    Face hub. The rest is as for `pacs`.
    """
    check_images(office_home, locals())
    if path is None:
        parts = _on_hub("flwrlabs/office-home", ["train"])
    else:
        parts = _in_folders("Office-Home", Path(path), OFFICE_HOME)
    return FederatedData(decoded(parts, channels, size, transform), partition, **more)


def domain_net(
    path: str | PathLike[str] | None,
    partition: Partition | None = None,
    *,
    size: int | None = 224,
    channels: int = 3,
    transform: Callable[[Any], Any] | None = None,
    **more: Any,
) -> FederatedData:
    """Read DomainNet: 586,575 images of 345 classes in 6 domains.

    `path` is a folder with ``clipart/<class>/``, ``infograph/``, ``painting/``, ``quickdraw/``, ``real/`` and
    ``sketch/``, or None for the Hugging Face hub. Where the lists ``clipart_train.txt`` and ``clipart_test.txt`` lie
    beside the folders, for each domain, the listed test images stay the test. The rest is as for `pacs`.
    """
    check_images(domain_net, locals())
    if path is None:
        parts = _on_hub("wltjr1007/DomainNet", ["train", "test"])
    elif sorted(Path(path).glob("*_train.txt")):
        parts = _in_lists(Path(path), DOMAIN_NET)
    else:
        parts = _in_folders("DomainNet", Path(path), DOMAIN_NET)
    return FederatedData(decoded(parts, channels, size, transform), partition, **more)


def _on_hub(name: str, splits: Sequence[str]) -> dict[str, ImageSet]:
    parts: dict[str, ImageSet] = {}
    for split in splits:
        table = load_table(name, split)
        image, label = image_columns(table)
        parts[split] = TableImages(table, image), table[label][:], texts_of(table, "domain").tolist()
    return parts


def _in_folders(name: str, root: Path, domains: Sequence[str]) -> dict[str, ImageSet]:
    """Read ``<domain>/<class>/<any name>.jpg``; domains may be spelled with other capitals, blanks and underscores."""
    held = {_plain(one.name): one for one in sorted(root.iterdir()) if one.is_dir()} if os.path.isdir(root) else {}
    missing = [domain for domain in domains if _plain(domain) not in held]
    if missing:
        rule = f"`path` must hold a folder for each domain of {name}, {', '.join(domains)}"
        there = ", ".join(one.name for one in held.values()) or "no folders"
        raise FileNotFoundError(f"{rule}; {root} lacks {', '.join(missing)}, it has {there}.")
    files = {domain: image_files(held[_plain(domain)]) for domain in domains}
    for domain, own in files.items():
        odd = next((file for file in own if file.parent.parent != held[_plain(domain)]), None)
        if odd is not None or not own:
            rule = f"images must be in <class>/<name>.jpg below the folder of {domain}"
            raise ValueError(f"{rule}; {held[_plain(domain)]} has {'none' if odd is None else odd}.")
    found = [file for own in files.values() for file in own]
    _, numbers = np.unique([file.parent.name for file in found], return_inverse=True)
    return {"train": (Files(found), numbers, [domain for domain, own in files.items() for _ in own])}


def _in_lists(root: Path, domains: Sequence[str]) -> dict[str, ImageSet]:
    """Read the images of DomainNet's lists, whose lines are the path of an image and the number of its class."""
    lists = {split: [(domain, root / f"{domain}_{split}.txt") for domain in domains] for split in ("train", "test")}
    missing = [file.name for own in lists.values() for _, file in own if not file.is_file()]
    if missing:
        raise FileNotFoundError(f"DomainNet has two lists for each domain, {root} lacks {', '.join(missing)}.")
    parts: dict[str, ImageSet] = {}
    for split, own in lists.items():
        found, numbers, owners = list[Path](), list[int](), list[str]()
        for domain, file in own:
            with reading_data(str(file)):
                lines = [line.rsplit(maxsplit=1) for line in file.read_text().splitlines() if line.strip()]
                numbers += [int(number) for _, number in lines]
                found += [root / name for name, _ in lines]
                owners += [domain] * len(lines)
        parts[split] = Files(found), numbers, owners
    return parts


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(" ", "").replace("-", "")
