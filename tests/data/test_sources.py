"""Data as people have them: every kind gives the same clients, and what cannot be meant is refused by a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning import LightningDataModule
from torch.utils.data import Dataset, Subset, TensorDataset

from lightning_fedhpo.data import Dirichlet, FederatedData, Iid, Natural
from lightning_fedhpo.testing import ToyModule, toy_data, toy_tensors
from tests.fits import fit

pd = pytest.importorskip("pandas")

X, Y = toy_tensors(120)
WHO = np.array(["anna", "bob", "cleo"])[np.arange(120) % 3]
NAMES = ["anna", "bob", "cleo"]
COLUMNS = list("abcdef")
FRAME = pd.DataFrame(X.numpy(), columns=COLUMNS).assign(client=WHO, label=Y.numpy())
MARKS = np.where(np.arange(120) < 90, "train", np.where(np.arange(120) < 105, "validation", "test"))


def own(name: str, x: Any = X, y: Any = Y) -> tuple[Any, Any]:
    return x[name == WHO], y[name == WHO]


OTHERS = toy_tensors(30)


class Flower:
    """What `flwr_datasets.FederatedDataset` answers: three partitions of the training part, and a test part."""

    def __init__(self, train: Any, test: Any) -> None:
        self.partitioners, self._train, self._test = {"train": self}, train, test
        self.num_partitions = 3

    def load_partition(self, partition_id: int, split: str) -> Any:
        assert split == "train"
        return Subset(self._train, range(partition_id, len(self._train), 3))

    def load_split(self, split: str) -> Any:
        if split != "test":
            raise ValueError("not present")
        return self._test


KINDS: dict[str, Callable[[], FederatedData]] = {
    "a table": lambda: FederatedData(FRAME, Natural("client")),
    "a table with a column `client`": lambda: FederatedData(FRAME),
    "owners as a column": lambda: FederatedData(FRAME, Natural(FRAME["client"]), features=COLUMNS),
    "numpy arrays": lambda: FederatedData((X.double().numpy(), Y.int().numpy()), Natural(WHO)),
    "a table without names": lambda: FederatedData(
        FRAME.set_axis([*range(6), "client", "label"], axis=1)[["client", *range(6), "label"]]
    ),
    "a tuple of data sets": lambda: FederatedData(tuple(TensorDataset(*own(name)) for name in NAMES)),
    "a dict of data sets": lambda: FederatedData({name: TensorDataset(*own(name)) for name in NAMES}),
    "a dict of tensors": lambda: FederatedData({name: own(name) for name in NAMES}),
    "a dict of arrays": lambda: FederatedData({name: own(name, X.numpy(), Y.numpy()) for name in NAMES}),
    "a dict of tables": lambda: FederatedData({name: FRAME[FRAME.client == name] for name in NAMES}),
    "a dict of lists": lambda: FederatedData({name: list(zip(*own(name), strict=True)) for name in NAMES}),
    "a list of data sets": lambda: FederatedData([TensorDataset(*own(name)) for name in NAMES]),
    "a list of pairs": lambda: FederatedData([own(name) for name in NAMES]),
    "Flower's partitions": lambda: FederatedData(Flower(TensorDataset(X, Y), TensorDataset(X[:9], Y[:9]))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_same_clients(kind: str) -> None:
    data = KINDS[kind]()
    assert (data.clients, data.names.tolist()) == (
        3,
        [0, 1, 2] if kind.startswith(("a list", "a tuple", "Fl")) else NAMES,
    )
    for client, name in enumerate(NAMES):
        x, y = own(name)
        whole = [data.examples(client, split) for split in ("train", "val", "test")]
        if kind == "Flower's partitions":  # its test part is dealt evenly, whoever has written it
            assert len(whole.pop()) == 3
        batches = [one.slice(0, len(one)) for one in whole]
        assert all(isinstance(one, torch.Tensor) for batch in batches for one in batch)
        rows = torch.cat([torch.cat([a, b[:, None]], 1) for a, b in batches])
        assert {*map(tuple, rows.tolist())} == {*map(tuple, torch.cat([x, y[:, None]], 1).tolist())}
        assert (batches[0][0].dtype, batches[0][1].dtype) == (torch.float32, torch.int64)


def test_a_module_that_takes_pairs_trains_on_a_table() -> None:
    fed, _, _ = fit(1, cohort=2, data=FederatedData(FRAME))
    same, _, _ = fit(1, cohort=2, data=FederatedData((X, Y), Natural(WHO)))
    assert fed.result.history["score"] == same.result.history["score"]


def test_data_with_owners_are_shared_out_anew() -> None:
    sets = {name: own(name) for name in NAMES}
    for partition in (Iid(5), Dirichlet(5, 10.0)):
        data = FederatedData(sets, partition, fractions=(1, 0, 0))
        assert (data.clients, data.names, int(data.sizes("train").sum())) == (5, None, 120)


def test_the_label_and_the_inputs_of_a_table_are_named() -> None:
    frame = FRAME.rename(columns={"label": "price"}).assign(price=np.arange(120) / 4, city="x")
    data = FederatedData(frame, Natural("client"), targets="price", features=["b", "a"], fractions=(1, 0, 0))
    x, y = data.examples(0).slice(0, 40)
    assert (x.shape, y.dtype) == ((40, 2), torch.float32)
    assert sorted(y.tolist()) == (np.arange(40) * 3 / 4).tolist()
    place = int(data.indices(0)[7])
    assert torch.equal(data.dataset()[place][0], X[place, [1, 0]])


def test_the_first_examples_train_and_the_last_test() -> None:
    data = FederatedData((X, Y), Natural(WHO), split="temporal")
    for client in range(3):
        whole = np.concatenate([data.indices(client, split) for split in ("train", "val", "test")])
        assert whole.tolist() == list(range(client, 120, 3))


@pytest.mark.parametrize("by", ["part", MARKS, lambda example: example[2]])
def test_a_column_says_which_split(by: Any) -> None:
    data = FederatedData(FRAME.assign(part=MARKS), Natural("client"), split="part")
    if not isinstance(by, str):
        pairs = list(zip(X, Y, MARKS.tolist(), strict=True))
        data = FederatedData((X, Y) if isinstance(by, np.ndarray) else pairs, Natural(WHO), split=by)
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[30] * 3, [5] * 3, [5] * 3]
    held = [place for client in range(3) for place in data.indices(client, "test").tolist()]
    assert sorted(held) == list(range(15)) and len(data.dataset("test")) == 15  # type: ignore[arg-type]


def test_parts_that_are_given_stay() -> None:
    whole = FederatedData({"train": FRAME[:90], "test": FRAME[90:]}, Natural("client"))
    assert int(whole.sizes("test").sum()) == 30 and len(whole.dataset("test")) == 30  # type: ignore[arg-type]
    each = {name: {"train": FRAME[:90][FRAME[:90].client == name], "test": FRAME[90:93]} for name in NAMES}
    own_parts = FederatedData(each)
    assert own_parts.sizes("test").tolist() == [3, 3, 3] and int(own_parts.sizes("train").sum()) < 90


def of(**columns: Any) -> FederatedData:
    return FederatedData(FRAME.assign(**columns))


class Streamed(Dataset[Any]):
    """Examples that are fetched one by one, or several at once."""

    def __init__(self) -> None:
        self.fetched = list[list[int]]()

    def __len__(self) -> int:
        return 10

    def __getitem__(self, place: int) -> Any:
        return X[place], Y[place]

    def __getitems__(self, places: list[int]) -> Any:
        self.fetched.append(places)
        return [self[place] for place in places]


def test_a_batch_of_one_client_is_fetched_at_once() -> None:
    sets = [Streamed(), Streamed()]
    data = FederatedData(sets, split="temporal")
    data.examples(1).slice(2, 5)
    data.pooled("train").examples(0).slice(7, 9)  # type: ignore[union-attr]  # of both
    assert (sets[0].fetched, sets[1].fetched) == ([], [[2, 3, 4]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of(city="x"), "column 'city' has .*: encode them, .* or name the others in `features`.$"),
        (lambda: of(city="x", when=WHO), r"columns \['city', 'when'\] have "),
        (
            lambda: FederatedData(FRAME.assign(city="x").rename(columns={"client": "Site"})),
            r"\['Site', 'city'\] .* who owns a row, Natural names",
        ),
        (
            lambda: of(**{f"feature number {i}": 0 for i in range(40)}, b=np.nan, c=np.nan),
            r"\['b', 'c'\] have 120, 120",
        ),
        (
            lambda: FederatedData(FRAME.assign(**{f"reading {i}": 0 for i in range(36)}), targets="no"),
            "'reading 35'",
        ),
        (lambda: of(label="yes"), r"the label must be numbers, .*astype\('category'\)\.cat\.codes"),
        (lambda: of(a=X[:, 0].where(X[:, 0] > 0, np.nan).numpy()), "'a' has .* missing values of 120"),
        (lambda: of(a=np.inf), "column 'a' has values that are not finite"),
        (lambda: of(client=[None, *WHO[1:]]), "NoneType, str for the train set, 1 missing: drop"),
        (lambda: of(client=[7, *WHO[1:]]), "all integers or all strings, `by` gives int, str"),
        (lambda: FederatedData(FRAME, Natural("clint")), "must name columns .* got 'clint'; .* Did you mean 'client'"),
        (lambda: FederatedData(FRAME, split="temporl"), "`split` must name columns .* Did you mean 'temporal'"),
        (lambda: FederatedData(FRAME, targets="lable"), "`targets` must name a column .* got 'lable'.*'label'"),
        (lambda: FederatedData(FRAME.drop(columns="label")), "a table's label is in the column that `targets` names"),
        (lambda: FederatedData(FRAME.drop(columns="client")), "`partition` says who .* got None; none is needed for"),
        (
            lambda: FederatedData({"train": FRAME, "test": FRAME.drop(columns="a")}),
            r"the first one, this one lacks \['a'\]",
        ),
        (lambda: FederatedData(FRAME, features=["a", "a"]), r"must be columns that differ, .* got \['a', 'a'\]"),
        (
            lambda: FederatedData((X, Y), Natural([X, Y])),
            "one value per example, 120 in the train set, got object of shape",
        ),
        (lambda: FederatedData(FRAME[:0]), "the training set has no examples"),
        (lambda: FederatedData(pd.concat([FRAME, FRAME], axis=1)), r"names that differ, several are called \['a'"),
        (lambda: FederatedData((X, Y), Iid(3), features=["a"]), "`features` are columns of a DataFrame, got a tuple"),
        (lambda: FederatedData(toy_data(), Iid(3), features=["a"]), "is a FederatedData already"),
        (lambda: FederatedData(LightningDataModule(), Iid(3), features=["a"]), "got a LightningDataModule: leave"),
        (lambda: FederatedData((X, Y), Natural(WHO), split=WHO), "mark each example with one of train.*'anna', 'bob'"),
        (lambda: FederatedData({"train": FRAME, "test": FRAME}, split=MARKS), "these data have train, test already"),
        (lambda: FederatedData({"train": FRAME, "unlabelled": FRAME}), r"got also \['unlabelled'\]: leave them out"),
        (lambda: FederatedData({"a": own("bob"), "b": (X[:0], Y[:0])}), r"1 of 2 have none \(the first is 'b'\)"),
        (
            lambda: FederatedData({"a": (X, Y), "b": (X[:, :3], Y)}),
            r"'a' has \[float32 6, int64\], 'b' has",
        ),
        (lambda: FederatedData({"a": (X, Y), 1: (X, Y)}), r"all texts or all whole numbers, got \['a', 1\]"),
        (lambda: FederatedData({"x": [1.0] * 9, "y": [0] * 9}, Iid(3)), "'x' has a list of float: .*tensors or arrays"),
        (lambda: FederatedData({}), "got no clients"),
        (lambda: FederatedData({"test": FRAME}, Natural("client")), "must have one called train, got test alone"),
        (
            lambda: FederatedData({"a": {"train": own("bob"), "tset": own("bob")}}),
            r"'a' has \['train', 'tset'\]: rename",
        ),
        (lambda: FederatedData({"a": {"test": own("bob")}}), r"and one is train, 'a' has \['test'\]"),
        (
            lambda: FederatedData((X.to_sparse(), Y), Iid(3)),
            r"must be dense, got torch.sparse_coo: take its `to_dense\(\)`",
        ),
        (lambda: FederatedData((np.ma.masked_equal(Y.numpy(), 1), Y), Iid(3)), "got a masked array: fill it"),
        (lambda: FederatedData(Path("rows.csv"), Iid(3)), r"got \w+Path; table, leaf and image_folders .* read files"),
        (lambda: FederatedData((WHO, Y), Iid(3)), "arrays of a data set must be of numbers, got <U4"),
        (lambda: FederatedData((FRAME, Y), Iid(3)), r"must hold tensors or arrays, got \['DataFrame', 'Tensor'\]"),
        (lambda: FederatedData(FRAME.groupby("client")), r"pass the table itself, and Natural\(column\)"),
        (lambda: FederatedData(5, Iid(3)), "must be a map-style data set .*, a DataFrame, .*Flower.*; got int"),
        (lambda: FederatedData([FRAME, FRAME], Iid(500)), "500 clients need 500, there are 240"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_one_client_and_a_server_with_a_table() -> None:
    fed, _, _ = fit(1, cohort=1, data=FederatedData({"anna": own("anna")}), target="server", server_data=OTHERS)
    assert len(fed.result.jobs) == 1
    x, y = OTHERS
    table = pd.DataFrame(x.numpy(), columns=COLUMNS).assign(more="x", label=y.numpy())[
        ["label", "more", *COLUMNS[::-1]]
    ]
    scores = [
        fit(1, cohort=2, data=FederatedData(FRAME), target="server", server_data=given)[0].result.history["score"]
        for given in (OTHERS, table)
    ]
    assert scores[0] == scores[1]


def test_a_dataset_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"x": X.tolist(), "label": Y.tolist(), "writer": WHO.tolist()}
    table = datasets.Dataset.from_dict(rows)
    parts = datasets.DatasetDict({"train": table.select(range(90)), "test": table.select(range(90, 120))})

    class Module(ToyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step((batch["x"], batch["label"]), batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return super().validation_step((batch["x"], batch["label"]), batch_idx)

    fed, _, _ = fit(1, cohort=2, module=Module(), data=FederatedData(table, Natural("writer")))
    same, _, _ = fit(1, cohort=2, data=FederatedData((X, Y), Natural(WHO)))
    assert fed.result.history["score"] == pytest.approx(same.result.history["score"], rel=1e-6)
    data = FederatedData(parts, Natural("writer"))
    assert (data.names.tolist(), data.sizes("test").tolist()) == (NAMES, [10, 10, 10])
    clients = FederatedData({name: table.filter(lambda one, name=name: one["writer"] == name) for name in NAMES})
    assert clients.examples(1).slice(0, 4)["writer"] == ["bob"] * 4
