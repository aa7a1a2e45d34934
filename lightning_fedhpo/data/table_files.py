"""Tables in files: CSV and Parquet, read by pandas."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from lightning_fedhpo.arguments import check_kinds, shown
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.frames import Frame
from lightning_fedhpo.data.partition import Partition
from lightning_fedhpo.data.splits import SPLIT_NAMES
from lightning_fedhpo.files.reading import reading_data

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def table(
    path: str | PathLike[str],
    partition: Partition | None = None,
    *,
    targets: str | None = None,
    features: Sequence[str] | None = None,
    **more: Any,
) -> FederatedData:
    """Read a table from a CSV or Parquet file; its rows are pairs ``(x, y)``.

    Args:
        path: A file that ends in ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet``, or a folder with such
            files that are called train, test and perhaps val.
        partition: Who owns which row, by default the column ``client``: ``Natural("hospital")`` names another one.
        targets: The label's column.
        features: The columns that make up ``x``, by default all others.
        more: Further arguments of `FederatedData`, such as `split`.
    """
    check_kinds(table, locals())
    files = {"train": Path(path)}
    if os.path.isdir(path):
        found = [file for file in sorted(Path(path).iterdir()) if file.name.endswith(ENDINGS)]
        files = {file.name.partition(".")[0]: file for file in found if file.name.partition(".")[0] in SPLIT_NAMES}
    if "train" not in files or not (files["train"].name.endswith(ENDINGS) and os.path.isfile(files["train"])):
        rule = f"`path` must be a file that ends in {', '.join(ENDINGS)}, or a folder with such a file called train"
        raise FileNotFoundError(f"{rule}; {path} is none.")
    frames = {split: _read(file) for split, file in files.items()}
    return FederatedData(frames, partition, targets=targets, features=features, **more)


def _read(file: Path) -> Frame:
    try:
        import pandas
    except ImportError as error:
        raise ModuleNotFoundError("files of tables need pandas: pip install 'lightning-fedhpo[data]'.") from error
    with reading_data(str(file), "Get the file anew, or read it by pandas and pass the table to FederatedData"):
        if file.name.endswith(".parquet"):
            return pandas.read_parquet(file)
        separator = "\t" if ".tsv" in file.name else ","
        frame = pandas.read_csv(file, sep=separator)
    if len(frame.columns) == 1:
        rule = f"columns in {file} must be separated by {separator!r}, it has a single one, {shown(frame.columns[0])}"
        raise ValueError(f"{rule}: read it by pandas.read_csv(path, sep=...) and pass the table to FederatedData.")
    return frame
