"""Plays by role: what is read from each form of files, and examples that are views on the text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lightning_fedhpo.data import Iid, role_files, shakespeare
from lightning_fedhpo.data.plays import roles_of
from lightning_fedhpo.data.shakespeare import LETTERS
from lightning_fedhpo.executors.vectorized import programs
from lightning_fedhpo.models import LSTM, Classifier
from tests.data.test_hub import datasets  # noqa: F401  # a fixture
from tests.fits import fit

SPEECHES = [
    ("HAMLET", ["Whither wilt thou lead me? Speak: I'll go no", "further."]),
    ("GHOST", ["Mark me."]),
    ("HAMLET", ["I will."]),
    ("GHOST", ["My hour is almost come,", "When I to sulph'rous and tormenting flames", "Must render up myself."]),
    ("FIRST CLOWN", ["Is she to be buried"]),
    ("HAMLET", ["Alas, poor ghost."]),
    ("FIRST CLOWN", ["In Christian burial?"]),
]
TEXTS = {role: "\n".join("\n".join(said) for one, said in SPEECHES if one == role) for role, _ in SPEECHES}
EDITIONS = {
    "alone, with a dot": lambda role, said: f"{role}.\n" + "\n".join(said) + "\n\n",
    "alone, the text indented": lambda role, said: f"{role}\n    " + "\n    ".join(said) + "\n",
    "indented, before the text": lambda role, said: f"  {role}. " + "\n    ".join(said) + "\n",
    "before the text": lambda role, said: f"{role}. " + "\n".join(said) + "\n",
    "two spaces": lambda role, said: f"{role}  " + "\n".join(said) + "\n\n",
    "tabulator": lambda role, said: f"{role}\t" + "\n\t".join(said) + "\n\n",
    "colon": lambda role, said: f"{role.title()}:\n" + "\n".join(said) + "\n\n",
    "shortened": lambda role, said: f"  {role.title()[:9]}. " + "\n".join(said) + "\n\n",
}
FRONT = (
    "\nA licence. *** START OF THIS BOOK ***\n{title}\n\nContents\nACT I\nScene I. A room\n\nDramatis Personæ\n"
    "THE QUEEN.\nLORDS\nGHOST\n\n\nACT I\n\nSCENE I. Elsinore. A platform.\n\nEnter GHOST and HAMLET.\n\n"
)


def printed(edition: str, title: str = "THE TRAGEDY OF HAMLET") -> str:
    speeches = [EDITIONS[edition](role, said) for role, said in SPEECHES]
    middle = "\nACT V. SCENE I.\nA churchyard.\n\n [_Exeunt._]\n\nExit GHOST\n\n"
    return (
        FRONT.format(title=title)
        + "".join(speeches[:4])
        + middle
        + "".join(speeches[4:])
        + "\nTHE END\n\nA poem.\n*** END OF IT ***\nNo."
    )


@pytest.mark.parametrize("edition", EDITIONS)
def test_editions_set_names_differently(tmp_path: Path, edition: str) -> None:
    (tmp_path / "hamlet.txt").write_text(printed(edition), encoding="utf-8")
    found = {role.upper(): text for role, text in roles_of(tmp_path / "hamlet.txt").items()}
    short = {"FIRST CLOWN": "FIRST CLO"} if edition == "shortened" else {}
    assert found == {f"HAMLET|{short.get(role, role)}": text for role, text in TEXTS.items()}


def test_plays_in_one_file_are_told_apart_by_their_acts(tmp_path: Path) -> None:
    (tmp_path / "works.txt").write_text(printed("colon") + printed("colon").replace("Mark me", "[Aside] Mark_ me"))
    roles = roles_of(tmp_path / "works.txt")
    assert roles["works 1|Ghost"] == roles["works 2|Ghost"].strip() == TEXTS["GHOST"] and len(roles) == 6


def windows(text: str, length: int) -> list[tuple[str, str]]:
    return [(text[at : at + length], text[at + length]) for at in range(len(text) - length)]


def leaf_file(file: Path, texts: dict[str, str], length: int = 8) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    users = {user: windows(text, length) for user, text in texts.items()}
    data = {user: {"x": [x for x, _ in rows], "y": [y for _, y in rows]} for user, rows in users.items()}
    file.write_text(json.dumps({"users": list(users), "num_samples": [1] * len(users), "user_data": data}))


def leaf(folder: Path) -> None:
    leaf_file(folder / "all.json", {f"hamlet|{role}": text for role, text in TEXTS.items()})


def objects(folder: Path) -> None:
    lines = [json.dumps({"user": f"hamlet|{role}", "text": text}) for role, text in TEXTS.items()]
    (folder / "roles.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def plain(folder: Path) -> None:
    (folder / "hamlet.txt").write_text(printed("alone, with a dot"), encoding="utf-8")


def characters(numbers: torch.Tensor) -> str:
    return "".join(LETTERS[number] for number in numbers.tolist())


@pytest.mark.parametrize("write", [leaf, objects, plain])
@pytest.mark.parametrize("chunk", [7, 1 << 24])
def test_examples_are_all_windows_of_each_role(tmp_path: Path, monkeypatch: Any, write: Any, chunk: int) -> None:
    monkeypatch.setattr(role_files, "CHUNK", chunk)
    write(tmp_path)
    data = shakespeare(tmp_path, length=8)
    assert data.names.tolist() == [f"hamlet|{role}" for role in TEXTS]
    for client, text in enumerate(TEXTS.values()):
        found = []
        for split in ("train", "val", "test"):  # in the order of the text
            x, y = data.examples(client, split).slice(0, 999)
            found += list(zip(map(characters, x), characters(y), strict=True))
        assert found == windows(text, 8)


def test_leafs_test_part_stays_the_test(tmp_path: Path) -> None:
    leaf_file(tmp_path / "train/a.json", {"a": "to be or not to be", "b": "that is the question", "small": "who's the"})
    leaf_file(tmp_path / "test/a.json", {"a": "to be or not", "small": "ay, there's the rub", "b": "that is"})
    data = shakespeare(tmp_path, length=8)
    assert [data.sizes(split).tolist() for split in ("train", "val", "test")] == [[9, 11], [1, 1], [4, 0]]
    assert characters(data.examples(0, "test").slice(3, 4)[0][0]) == "be or no"


def test_every_character_as_a_label_once(tmp_path: Path) -> None:
    plain(tmp_path)
    data = shakespeare(tmp_path, length=8, stride=8, every=True, fractions=(1, 0, 0))
    x, y = data.examples(0).slice(0, 99)
    text = TEXTS["HAMLET"]
    pieces = [text[at : at + 9] for at in range(0, len(text) - 8, 8)]
    assert list(map(characters, x)) == [piece[:-1] for piece in pieces]
    assert list(map(characters, y)) == [piece[1:] for piece in pieces]
    fit(1, cohort=1, module=LSTM(embedding=2, hidden=3, every=True), data=shakespeare(tmp_path, length=8, every=True))


def test_examples_are_views_on_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"user": "a", "text": "to be or not to be " * 1000}))
    data = shakespeare(tmp_path / "a.jsonl")
    x, y = data.columns().tensors
    assert len(x) >= 18_920 and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert x.untyped_storage().nbytes() <= 8 * (19_000 + 81)


class Means(nn.Module):
    """Score the next character by the mean of those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 80)
        nn.init.uniform_(self.embedding.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.embedding(text).mean(1)


def test_views_go_side_by_side(tmp_path: Path, monkeypatch: Any) -> None:
    plain(tmp_path)
    strides = []

    def uncompiled(graph: Any, inputs: list[torch.Tensor]) -> Any:  # compiling takes seconds
        strides.append([tensor.stride() for tensor in inputs])
        return graph.forward

    monkeypatch.setattr(programs, "compiled", uncompiled)
    modules = [Classifier(Means(), lr=1.0) for _ in range(3)]
    for executor, module in zip(("sequential", "vectorized"), modules, strict=False):  # falling back would warn
        fit(2, cohort=3, executor=executor, module=module, data=shakespeare(tmp_path, length=8))
    assert strides and all((1, 1) in each for each in strides), "the text is not copied window by window"
    one, other, untrained = (module.net.embedding.weight for module in modules)
    assert torch.allclose(one, other, atol=1e-6) and not torch.allclose(one, untrained, atol=1e-2)


def test_roles_with_too_few_characters_are_left_out_and_counted(tmp_path: Path, capsys: Any, caplog: Any) -> None:
    texts = {"long": "to be or not to be", "short": "to be or", "none": "", "one": "to be or not"}
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"user": u, "text": t}) for u, t in texts.items()))
    with caplog.at_level("INFO", logger="lightning.pytorch"):
        data = shakespeare(tmp_path, length=8, min_size=5)
    data.describe()
    assert data.names.tolist() == ["long"] and "3 with too few characters" in capsys.readouterr().out
    assert "1 of 4 roles, the others have fewer than 5 examples of 9 characters; 0 of 38" in caplog.text
    assert shakespeare(tmp_path, length=8, min_size=4).names.tolist() == ["long", "one"]
    assert int(shakespeare(tmp_path, Iid(3), length=8, min_size=4).sizes("train").sum()) == 10 + 4 - 2 * 3


def test_typeset_characters_become_those_of_a_typewriter(tmp_path: Path, caplog: Any) -> None:
    text = "“Cæsar’s Rosalíne”—\tay…" + "x" * 500 + "$"
    (tmp_path / "a.jsonl").write_text(json.dumps({"user": "a", "text": text}), encoding="utf-8")
    with caplog.at_level("INFO", logger="lightning.pytorch"):
        data = shakespeare(tmp_path, fractions=(1, 0, 0), length=24)
    assert "1 of 524 characters are not in the vocabulary" in caplog.text
    x, y = data.examples(0).slice(0, 1)
    assert characters(x[0]) + characters(y) == '"Caesar\'s Rosaline"-- ay...xx'[:25]
    own = shakespeare(tmp_path, fractions=(1, 0, 0), length=24, vocabulary=LETTERS + "’$")
    assert own.examples(0).slice(0, 1)[0][0, 7] == 80


def test_leafs_set_on_the_hub(datasets: Any, monkeypatch: Any) -> None:  # noqa: F811
    rows = [(user, x, y) for user in ("GHOST", "HAMLET") for x, y in windows(TEXTS[user], 8)]
    names = "character_id", "x", "y"
    table = datasets.Dataset.from_dict(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: table)
    data = shakespeare(None, length=8, fractions=(1, 0, 0))
    assert (data.names.tolist(), data.sizes("train").tolist()) == (
        ["GHOST", "HAMLET"],
        [len(TEXTS[user]) - 8 for user in ("GHOST", "HAMLET")],
    )


def unreachable(name: str, split: str) -> Any:
    raise ConnectionError(f"Couldn't reach '{name}' on the Hub")


def test_a_hub_that_cannot_be_reached(datasets: Any, monkeypatch: Any) -> None:  # noqa: F811
    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ConnectionError, match="flwrlabs/shakespeare.* on this machine, say so with `path`"):
        shakespeare(None)


BAD = {
    "nothing": ({}, "must be a file of plays, .txt, .jsonl, .jsonl.gz or LEAF's .json, or a folder .* is none"),
    "no plays": ({"a.txt": "Once upon a time.\n" * 50}, "a.txt is damaged or of another format: .*names before their"),
    "no JSON": ({"a.json": '{"user_data": {"a": {"x": ["to b'}, "a.json is damaged or of another format: Unterminated"),
    "other JSON": ({"a.json": "{}"}, "a.json is damaged or of another format: LEAF's files have `user_data`"),
    "images": ({"a.json": '{"user_data": {"a": {"x": [[1]], "y": [0]}}}'}, r"'a' has \[1\] and 0"),
    "no labels": ({"a.json": '{"user_data": {"a": {"x": ["to be"]}}}'}, "another format: it has no 'y'"),
    "no gzip": ({"a.jsonl.gz": "to be"}, "a.jsonl.gz is damaged or of another format: Not a gzipped file"),
    "without text": ({"a.jsonl": '{"user": "a", "text": "b"}\n{"user": "ghost"}'}, "a `user` and a `text`, line 2 is"),
    "empty text": ({"a.jsonl": '{"user": "a", "text": ""}'}, "the longest of 1 roles has 0: is this a play?"),
    "another alphabet": (
        {"a.jsonl": json.dumps({"user": "a", "text": "to be " * 20 + "быть"})},
        "characters of `vocabulary`, 4 of 124 are others, such as 'быть'|'бтыь': add them to `vocabulary`",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_explained_in_a_sentence(tmp_path: Path, case: str) -> None:
    files, message = BAD[case]
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        shakespeare(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"vocabulary": "aa"}, "must be different characters"), ({"stride": 0}, "`stride` must be at least 1")],
)
def test_wrong_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    plain(tmp_path)
    with pytest.raises(ValueError, match=message):
        shakespeare(tmp_path, **options)


def test_data_that_are_sorted_by_client_are_grouped_as_others() -> None:
    from lightning_fedhpo.data.grouping import group

    owners = np.repeat(np.array([-1, 0, 2], dtype=np.int32), [2, 3, 4])
    order, offsets = group(owners, 4)
    assert (order.tolist(), offsets.tolist()) == (list(range(2, 9)), [0, 3, 3, 7, 7])
