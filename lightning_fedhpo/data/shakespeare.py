"""The plays of Shakespeare, a client for each role, to predict the next character.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, and Caldas et
al., "LEAF: A Benchmark for Federated Settings", 2018: an example is 80 characters of what a role says and the one that
follows, one example from each place. All examples together are a view on one text: four million of them take as much
memory as the text, and a batch is one indexing operation.

Deviation: the papers cut a role's lines into training and test. Here examples are cut, in the order of the text, so the
first test examples look back at characters of the training. No character that is to be predicted is ever seen before.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike

import numpy as np
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from numpy.typing import NDArray
from torch.utils.data import Subset, TensorDataset

from lightning_fedhpo.arguments import check_kinds, shown, whole
from lightning_fedhpo.data.federation import FederatedData
from lightning_fedhpo.data.grouping import Ints
from lightning_fedhpo.data.partition import Assignment, Partition
from lightning_fedhpo.data.parts import By, Part
from lightning_fedhpo.data.role_files import Role, read_roles

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters; a character's number is its place."""
TYPED = {
    "‘": "'",
    "’": "'",
    "`": "'",
    "“": '"',
    "”": '"',
    "–": "-",
    "—": "--",
    "æ": "ae",
    "Æ": "Ae",
    "œ": "oe",
    "Œ": "Oe",
}
"""What typesetters have for letters of a typewriter; accents are taken off, too."""
MOST_OUTSIDE = 0.01
"""The part of a text that may be other characters: with more of them it is in another alphabet."""


def shakespeare(
    path: str | PathLike[str] | None,
    partition: Partition | None = None,
    *,
    length: int = 80,
    stride: int = 1,
    every: bool = False,
    min_size: int = 3,
    vocabulary: str = LETTERS,
    split: By = "temporal",
    **more: object,
) -> FederatedData:
    """Read plays: an input is the numbers of `length` characters, its label the number of the next one.

    Accents, typeset quotes and dashes that the vocabulary does not have become those of a typewriter. Other characters
    are left out. A line says how many, and how many roles are left out.

    Args:
        path: A folder of LEAF's with ``train/*.json`` and ``test/*.json``, or with ``*.json``; plays as plain text; a
            file of a JSON object with ``user`` and ``text`` in each line, ``.jsonl`` or ``.jsonl.gz``; a folder of such
            files; or None for the Hugging Face hub.
        partition: Shares the examples out anew; by default a role is a client.
        length: The characters of an input.
        stride: From the start of an example to the start of the next one.
        every: Whether every character has its next one as label, of shape (examples, length), or the last only.
        min_size: Roles with fewer examples are left out.
        vocabulary: The characters.
        split: As of `FederatedData`. Drawn at random, test characters stand in training examples.
        more: Further arguments of `FederatedData`.
    """
    check_kinds(shakespeare, locals())
    for name, value in (("length", length), ("stride", stride), ("min_size", min_size)):
        whole(name, value)
    letters = Letters(vocabulary)
    parts = {name: _windows(roles, letters, length, stride, every) for name, roles in read_roles(path).items()}
    if letters.outside > MOST_OUTSIDE * letters.count:
        raise ValueError(
            f"a text must be of the characters of `vocabulary`, {letters.outside:,} of {letters.count:,} are others, "
            f"such as {''.join(sorted(letters.others))[:20]!r}: add them to `vocabulary`."
        )
    sizes = parts["train"].sizes
    kept = [name for name, size in sizes.items() if size >= min_size]
    if not kept:
        rule = f"`min_size` is {min_size} examples of {length + 1} characters"
        raise ValueError(
            f"{rule}, the longest of {len(sizes)} roles has {max(sizes.values(), default=0)}: is this a play?"
        )
    rank_zero_info(
        f"shakespeare: {len(kept):,} of {len(sizes):,} roles, the others have fewer than {min_size} examples of "
        f"{length + 1} characters; {letters.outside:,} of {letters.count:,} characters are not in the vocabulary."
    )
    numbers = {name: number for number, name in enumerate(kept)}
    owned = {name: part.owned(numbers) for name, part in parts.items()}
    sources = {name: Subset(parts[name].windows, rows) for name, (rows, _) in owned.items() if len(rows)}  # type: ignore[arg-type]  # an array is a sequence
    roles = Roles({name: owners for name, (_, owners) in owned.items()}, np.array(kept), len(sizes) - len(kept))
    return FederatedData(sources, partition or roles, split=split, **more)  # type: ignore[arg-type]  # checked there


@dataclass(frozen=True, eq=False, repr=False)
class Roles:
    """A partition with a client for each role.

    Args:
        owners: For each split the number of the role of each example.
        names: What roles are called.
        left_out: How many have too few examples.
    """

    owners: Mapping[str, Ints]
    names: NDArray[np.str_]
    left_out: int

    def __repr__(self) -> str:
        return f"role ({self.left_out:,} with too few characters are left out)"

    def assign(self, parts: Iterable[Part], rng: np.random.Generator) -> Assignment:
        """Return the role of each example."""
        return Assignment([self.owners[part.name] for part in parts], len(self.names), self.names)


class Letters:
    """Numbers of characters, and a count of those that have none."""

    def __init__(self, vocabulary: str) -> None:
        if len(vocabulary) < 2 or len(set(vocabulary)) < len(vocabulary):
            raise ValueError(f"`vocabulary` must be different characters, at least two, got {shown(vocabulary)}.")
        self._known = set(vocabulary)
        self._numbers = np.zeros(max(map(ord, vocabulary)) + 1, dtype=np.min_scalar_type(len(vocabulary)))
        self._numbers[[ord(one) for one in vocabulary]] = np.arange(len(vocabulary))
        self.count, self.outside, self.others = 0, 0, set[str]()

    def encode(self, text: str) -> Ints:
        """Return the numbers of a text's characters."""
        self.count += len(text)
        for one in set(text) - self._known:
            if not (known := self._replaced(one)):
                self.outside += text.count(one)
                self.others.add(one)
            text = text.replace(one, known)
        numbers: Ints = self._numbers[np.frombuffer(text.encode("utf-32-le"), "<u4")]
        return numbers

    def _replaced(self, letter: str) -> str:
        plain = " " if letter.isspace() else TYPED.get(letter) or unicodedata.normalize("NFKD", letter)
        return "".join(one for one in plain if one in self._known)


@dataclass(frozen=True, eq=False)
class Windows:
    """The examples of a split: all windows of one text, and which of them are whose."""

    windows: TensorDataset
    spans: list[tuple[str, int, int]]
    """Roles, and the numbers of their windows: the first, and the end."""
    stride: int

    @property
    def sizes(self) -> dict[str, int]:
        """The number of each role's examples."""
        sizes = dict.fromkeys((name for name, _, _ in self.spans), 0)
        for name, first, end in self.spans:
            sizes[name] += len(range(first, end, self.stride))
        return sizes

    def owned(self, numbers: Mapping[str, int]) -> tuple[Ints, Ints]:
        """Return the rows of the windows of these roles, and the number of the role of each."""
        held = [(numbers[name], range(first, end, self.stride)) for name, first, end in self.spans if name in numbers]
        theirs = np.zeros(len(self.windows), dtype=bool)
        for _, rows in held:
            theirs[rows.start : rows.stop : rows.step] = True
        owners = np.array([number for number, _ in held], dtype=np.int32)
        return np.flatnonzero(theirs), np.repeat(owners, [len(rows) for _, rows in held])


def _windows(roles: Iterable[Role], letters: Letters, length: int, stride: int, every: bool) -> Windows:
    """Return all windows of the roles' texts; those that would reach into another text are nobody's."""
    texts = [(name, letters.encode(text)) for name, pieces in roles for text in pieces or [""]]
    spans, start = [], 0
    for name, text in texts:
        spans.append((name, start, start + max(0, len(text) - length)))
        start += len(text)
    filled = [*(text for _, text in texts), np.zeros(length + 1, dtype=np.uint8)]
    whole_text = torch.from_numpy(np.concatenate(filled).astype(np.int64))
    after = whole_text[1:]
    x, y = whole_text[:-1].unfold(0, length, 1), after.unfold(0, length, 1) if every else after[length - 1 :]
    return Windows(TensorDataset(x, y), spans, stride)
