"""Which reader a set of images needs: by what is in the folder."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from lightning_fedhpo.data import cifar_binary, idx
from lightning_fedhpo.data.image_folder import read_image_folder
from lightning_fedhpo.data.labelled_images import LabelledImages
from lightning_fedhpo.data.npz import read_npz


def read_image_files(path: str | PathLike[str], channels: int, test: bool = True) -> dict[str, LabelledImages]:
    """Return the training part of a set, and its test part, whatever kind of files they are in.

    Args:
        path: A folder of IDX files, of CIFAR-10's binary batches, or of ``train/<class>/`` and ``test/<class>/``, or an
            ``.npz`` file.
        channels: 1 for grey images, 3 for coloured ones: how compressed images are decoded.
        test: Whether to read the test part too.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ".npz":
        return read_npz(path, channels, test)
    if path.is_dir():
        held = {entry.name for entry in path.iterdir()}
        if held & set(idx.names("train", "images", 3)):
            return idx.read_idx_images(path, test)
        if held & set(cifar_binary.FILES["train"]):
            return cifar_binary.read_cifar_binary(path, test)
        if "train" in held:
            return read_image_folder(path, channels, test)
    raise FileNotFoundError(
        "`path` must be an .npz file, or a folder with train-images-idx3-ubyte (.gz or not), with data_batch_1.bin, or "
        f"with train/<class>/; {path} is none of these" + ("." if path.exists() else ": it does not exist.")
    )
