"""FederatedData: a data set, or a data module, as clients with training, validation and test examples of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning import LightningDataModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from lightning_fedhpo import _lightning as private
from lightning_fedhpo import arguments, seeding
from lightning_fedhpo.data import describe as description
from lightning_fedhpo.data.columns import CLIENT, Columns, stored
from lightning_fedhpo.data.datamodule import open_datamodule
from lightning_fedhpo.data.examples import Examples
from lightning_fedhpo.data.fingerprint import fingerprint
from lightning_fedhpo.data.grouping import Ints
from lightning_fedhpo.data.partition import Natural, Partition
from lightning_fedhpo.data.parts import By
from lightning_fedhpo.data.proxy import DataModuleProxy, overrides
from lightning_fedhpo.data.sources import Reader
from lightning_fedhpo.data.splits import ORDERS, Federation, Source, Split, build, one_client
from lightning_fedhpo.types import SPLITS

PARTITION_RULE = (
    "`partition` says who owns which example: Iid(clients), Dirichlet(clients, alpha), Shards(clients, "
    "classes_per_client), Quantity(clients, alpha) or Natural(by), got {}; none is needed for data that come client by "
    "client, such as a dict of data sets, or that have a column `client`."
)
BATCH_SIZE, EVAL_BATCH_SIZE = 32, 512
"""The batch sizes of local training, and of validation and test, where nobody sets them."""


class FederatedData(DataModuleProxy):
    """A data set shared out to clients.

    A client without validation examples trains, and takes no part in scores; a client without training examples is an
    error. Tensors are indexed directly; any other map-style data set is fetched example by example and collated as a
    `DataLoader` does it.

    A data module's training, validation and test sets are partitioned alike, and its batch size, `collate_fn`,
    `drop_last` and batch transfer hooks are kept. It is prepared and set up once, when the clients are first needed,
    and never torn down, since its data sets stay in use. A set it does not have is cut from each client's training
    examples, in the ratio of the fractions (and with the training set's transforms); a fraction of 0 leaves it empty.
    Its hyperparameters, and public attributes and methods whose names are not taken, can be read and set here.

    Args:
        dataset: A map-style data set; tensors or numpy arrays of equal length in a tuple, a list or a dict (whose
            batches are dicts then); a DataFrame, whose batches are pairs ``(x, y)``; a Dataset of Hugging Face; a dict
            or a list with one of these for each client; a dict with one for each of train, val and test, such as a
            DatasetDict; a FederatedDataset of Flower's; or a LightningDataModule.
        partition: Who owns which example: `Iid`, `Dirichlet`, `Shards`, `Quantity` or `Natural`. Data that come client
            by client, or have a column ``client``, need none; with one, they are shared out anew.
        fractions: How a client's examples are split into training, validation and test. Counts are rounded to the
            nearest; a client of three examples or more has at least one of each part whose fraction is above 0, and
            training never ends up empty.
        seed: Draws the partition and the splits. A client's split is a function of the seed, of the client's name or
            number, and of how many examples it has: other clients do not matter.
        batch_size: The local batch size unless one is set or tuned. Default: the data module's, else 32.
        eval_batch_size: The batch size of validation and test. Default: the data module's for validation, else 512.
        collate_fn: Makes a batch of a list of examples. Default: the data module's, else torch's.
        targets: An integer label per example for partitions by label and for `describe`: a sequence, a column's name, a
            function of the example, or a dict of these per split. Default: the data set's `targets` or `labels`, the
            last of its tensors, or the last element of each example. Of a DataFrame it is the column of the label, of
            whatever numbers.
        features: The columns of a DataFrame that make up ``x``. Default: all but the label's, ``client``, and those
            that `partition` and `split` name.
        split: How a client's examples are split: ``"random"``; ``"temporal"``, in their order in the data, so that the
            first train and the last test; or what marks each example with train, val or test: a column's name, a
            function of the example, or the marks.
        server_fraction: The part of the training examples that no client has: the server's own validation set, for
            ``FederatedLoop(target="server")``.

    Example:
        >>> from lightning_fedhpo.data import Dirichlet, FederatedData
        >>> x, y = torch.zeros(1000, 20), torch.arange(1000) % 10
        >>> data = FederatedData((x, y), Dirichlet(clients=50, alpha=0.5, min_size=10), seed=1)
        >>> len(data), data.batch_size, bool(data.sizes("train").min() >= 8)
        (50, 32, True)
    """

    def __init__(
        self,
        dataset: Dataset | LightningDataModule | Sequence[Any] | Mapping[Any, Any],  # type: ignore[type-arg]  # LightningCLI makes a bare Dataset of Dataset[Any], and takes the first that fits
        partition: Partition | None = None,
        *,
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        seed: int = 0,
        batch_size: int | None = None,
        eval_batch_size: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        targets: By | None = None,
        features: Sequence[str] | None = None,
        split: By = "random",
        server_fraction: float = 0.0,
    ) -> None:
        super().__init__()
        owned = partition is None
        partition = Natural(CLIENT) if partition is None else partition
        if not isinstance(partition, Partition) or isinstance(partition, type | Sized):  # a table has `assign`, too
            raise TypeError(PARTITION_RULE.format(arguments.shown(partition)))
        if isinstance(dataset, FederatedData):
            raise TypeError("`dataset` is a FederatedData already: pass the data set or data module it was made of.")
        given = {name: value for name, value in locals().items() if name not in ("dataset", "partition")}
        arguments.check_kinds(FederatedData, given)
        for name in ("batch_size", "eval_batch_size"):
            if given[name] is not None:
                arguments.whole(name, given[name])
        self.partition = partition
        self.fractions = check_fractions(fractions)
        self.seed = check_seed(seed)
        self.server_fraction = arguments.number("server_fraction", server_fraction, low=0, below=1)
        self._batch_size, self._eval_batch_size = batch_size, eval_batch_size
        self._collate_fn, self._targets, self._split_by = collate_fn, targets, split
        named = (None if owned else getattr(partition, "by", None), split)
        others = [by for by in named if isinstance(by, str) and by not in ORDERS]
        self._reader = Reader(targets, features, others, formats=collate_fn is None, seed=self.seed)
        self._federation: Federation | None = None
        self._fingerprint: str | None = None
        if isinstance(dataset, LightningDataModule):
            if features is not None:
                raise TypeError("`features` are columns of a DataFrame, got a LightningDataModule: leave them out.")
            self._stand_in_for(dataset)
        else:
            sources = self._reader.sources(dataset, owned)
            if owned and stored(sources["train"], [CLIENT]) is None:
                raise TypeError(PARTITION_RULE.format("None"))
            self._share_out({name: Source(one) for name, one in sources.items()})

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self._built().clients

    def __len__(self) -> int:
        return self.clients

    @property
    def names(self) -> NDArray[Any] | None:
        """What the clients are called in the data (`Natural`), else None."""
        return self._built().names

    @property
    def batch_size(self) -> int:
        """The local batch size that holds if no tuner sets one."""
        return self._batch_size or self._split("train").source.batch_size or BATCH_SIZE

    @property
    def eval_batch_size(self) -> int:
        """The batch size of validation and test."""
        val = self._split("val").source
        theirs = None if val is self._split("train").source else val.batch_size
        return self._eval_batch_size or theirs or EVAL_BATCH_SIZE

    @property
    def drop_last(self) -> bool:
        """Whether the last, smaller batch of local training is left out."""
        return self._split("train").source.drop_last

    def sizes(self, split: str) -> NDArray[np.int64]:
        """Return every client's number of examples in a split."""
        return self._split(split).sizes

    def indices(self, client: int, split: str = "train") -> Ints:
        """Return the positions of a client's examples in ``dataset(split)``: a view, not to be written to."""
        return self._split(split).indices(client)

    def order(self, split: str = "train") -> Ints:
        """Return the positions of all clients' examples in ``dataset(split)``, the first client's first."""
        return self._split(split).order

    def examples(self, client: int, split: str = "train") -> Examples:
        """Return a client's examples, ready to be cut into batches."""
        return self._split(split).examples(client)

    def columns(self, split: str = "train") -> Columns | None:
        """Return the tensors that a split's examples are rows of, None where they are anything else."""
        return self._split(split).columns

    def rows(self, client: int, split: str = "train") -> Ints:
        """Return which rows of ``columns(split)`` are a client's: a view, not to be written to."""
        return self._split(split).rows(client)

    def dataset(self, split: str = "train") -> Dataset[Any]:
        """Return the data set that a split's positions refer to."""
        return self._split(split).source.dataset

    def labels(self, split: str = "train") -> Ints:
        """Return an integer label for each example of ``dataset(split)``."""
        self._split(split)
        return self._built().parts[split].labels

    def labels_at_hand(self) -> bool:
        """Whether training labels are there without a look at every example, which can take minutes."""
        return self._built().parts["train"].labels_at_hand

    def pooled(self, split: str) -> Split | None:
        """Return all clients' examples of a split as one owner's, None where there are none."""
        pool = self._split(split)
        return one_client(pool.source, pool.order) if len(pool.order) else None

    def as_server(self, dataset: Any) -> Split:
        """Return a data set of the server's, whose batches are made as those of the clients' validation."""
        return one_client(replace(self._split("val").source, dataset=self._reader.dataset(dataset)))

    @property
    def server(self) -> Split | None:
        """What is held out for the server, None where nothing is."""
        return self._built().server

    def fingerprint(self) -> str:
        """Return a hash of who has which examples, and of a sample of their contents: the same in any process."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._built())
        return self._fingerprint

    def describe(self) -> None:
        """Print the clients' number, sizes and labels; :mod:`lightning_fedhpo.plots` draws them."""
        description.describe(self)

    def setup(self, stage: str | None = None) -> None:
        """Share out the examples, at the first call."""
        if self._module is not None and self._federation is None:
            self._share_out(open_datamodule(self._module))
            private.share_hyperparameters(self._module, self)  # again: it may have saved some in its `setup`

    def train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of all clients' training examples, shuffled."""
        if self.trainer is not None and not any(hasattr(one, "is_federated_loop") for one in self.trainer.callbacks):  # type: ignore[attr-defined]  # Lightning's own
            rank_zero_warn(
                "this Trainer has no FederatedLoop: it trains one model on all clients' examples together. For a "
                "federated run, Trainer(callbacks=[FederatedLoop(...)])."
            )
        return self._split("train").loader(self.batch_size, self._generator(), shuffle=True)

    def val_dataloader(self) -> DataLoader[Any] | list[DataLoader[Any]]:
        """Return a loader of all clients' validation examples; an empty list if there are none."""
        return self._pooled("val")

    def test_dataloader(self) -> DataLoader[Any] | list[DataLoader[Any]]:
        """Return a loader of all clients' test examples; an empty list if there are none."""
        return self._pooled("test")

    def predict_dataloader(self) -> Any:
        """Return the data module's own loader for prediction if it has one, else a loader of all test examples."""
        if self._module is None or not overrides(self._module, "predict_dataloader"):
            return self._pooled("test")
        self._built()
        self._module.setup("predict")
        return self._module.predict_dataloader()

    def _share_out(self, sources: Mapping[str, Source]) -> None:
        if (collate := self._collate_fn) is not None:
            sources = {name: replace(source, collate_fn=collate) for name, source in sources.items()}
        self._federation = build(
            sources, self.partition, self.fractions, self.seed, self._targets, self.server_fraction, self._split_by
        )

    def _built(self) -> Federation:
        if self._federation is None:
            if self.trainer is None:  # a trainer prepares the data itself, on one process per node
                self.prepare_data()
            self.setup()
        return self._federation  # type: ignore[return-value]  # set up just now at the latest

    def _split(self, split: str) -> Split:
        splits = self._built().splits
        if split not in splits:
            raise ValueError(f"`split` must be one of {', '.join(SPLITS)}, got {split!r}.")
        return splits[split]

    def _pooled(self, split: str) -> DataLoader[Any] | list[DataLoader[Any]]:
        pool = self._split(split)
        return pool.loader(self.eval_batch_size, self._generator()) if len(pool.order) else []

    def _generator(self) -> torch.Generator:
        # A loader without one draws from torch's global generator, even if it does not shuffle.
        return torch.Generator().manual_seed(seeding.key(self.seed, seeding.BATCHES, client=-1))


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return the fractions of training, validation and test examples, or raise if they are none."""
    values = [float(arguments.number("fractions", fraction, 0, 1)) for fraction in fractions]
    if len(values) != 3 or abs(sum(values) - 1) > 1e-6 or values[0] == 0:
        rule = "`fractions` must be three numbers of at least 0 for training, validation and test that sum to 1, the"
        raise ValueError(f"{rule} first above 0, got {arguments.shown(fractions)}: for instance (0.8, 0.1, 0.1).")
    return values[0], values[1], values[2]


def check_seed(seed: int) -> int:
    """Return the seed as a plain number, or raise if draws cannot be made with it."""
    return arguments.whole("seed", seed, 0, seeding.MOST_SEED)
