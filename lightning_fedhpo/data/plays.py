"""Plays as plain text: who speaks, and what they say.

Editions differ in how they set a role's name. Three ways are known: in capitals, alone on its line or before the speech
(``HAMLET.``, ``HAMLET. Not so``, ``HAMLET  Not so``); after an empty line and before a colon (``First Citizen:``); and
indented and shortened (``  Ham. Not so``). The way that finds the most speeches is taken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

WORD = r"[A-ZÀ-Þ0-9][A-ZÀ-Þ0-9'’&-]*"
STYLES = {
    "capitals": re.compile(
        rf"^ {{0,3}}((?:(?:MRS?|DR|ST)\. )?(?=..){WORD}(?: {WORD})*)(?:[.:]?\s*$|[.:]\s+|\s{{2,}}|\t)(.*)"
    ),
    "colon": re.compile(r"^([A-Z][\w'’&. -]{0,40}?):\s*(.*)"),
    "indented": re.compile(r"^ {1,6}((?:[1-9]\.? ?)?[A-Z][a-z]+(?: [A-Z][a-z]*)?)\. +(\S.*)"),
}
ACT = re.compile(r"^[\s_]*(?:act|actus)\s+(\w+)\b(?:[.,:;_]|\s*$|\s+scen)", re.IGNORECASE)
FIRST = {"i", "1", "one", "primus"}
TITLE = re.compile(
    r"^[\s_]*(?:(?:scene|scena|induction|dramatis|persons represented|contents|the end|finis)\b|[ivxlc]+\.?\s*$)",
    re.IGNORECASE,
)
CAST = re.compile(r"^[\s_]*(?:dramatis|persons represented)", re.IGNORECASE)
DIRECTION = re.compile(r"^\s*[\[(_]*(?:enter|re-?enter|exit|exeunt|manet|flourish|alarums?|sennet)\b", re.IGNORECASE)
BESIDE = re.compile(r"\[[^\[\]]{0,400}\]|<<.*?>>|_", re.DOTALL)
"""Directions within a speech, an old edition's licence, and marks of italics."""
LEGAL = re.compile(r"\*\*\* ?END OF.*?(?=\*\*\* ?START OF|\Z)", re.DOTALL)
"""What stands after a book of Project Gutenberg's."""


def roles_of(file: Path) -> dict[str, str]:
    """Return what each role of the plays in a file says, in the order it is said, by ``<play>|<role>``.

    A new play begins where act I comes again. Names that speak once may be titles, and are left out.
    """
    lines = _lines(file)
    found = [list(_speeches(lines, style)) for style in STYLES]
    speeches = max(found, key=len)
    times = Counter((play, name) for play, name, _ in speeches)
    places = {play: place for place, play in enumerate(dict.fromkeys(play for play, _ in times))}
    texts: dict[str, list[str]] = {}
    for play, name, said in speeches:
        if times[play, name] > 1:
            title = f"{file.stem} {places[play] + 1}" if len(places) > 1 else file.stem
            texts.setdefault(f"{title}|{name}", []).append(BESIDE.sub("", "\n".join(said)).strip())
    if len(texts) < 2:
        raise ValueError(
            "a text of plays has roles' names before their speeches, as `HAMLET.`, `HAMLET. Not so` or `Hamlet:`, this "
            "one has none that come again"
        )
    return {name: "\n".join(filter(None, said)) for name, said in texts.items()}


def _lines(file: Path) -> list[str]:
    raw = file.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:  # older editions
        text = raw.decode("cp1252")
    return LEGAL.sub("", text).splitlines()


def _speeches(lines: list[str], style: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number of the play, the role, and the lines of each speech.

    Where plays have acts, nothing counts before the first one, in lists of roles, and after the end.
    """
    acts = any(ACT.match(line) for line in lines)
    play, act, within, after_empty = 0, "", not acts, True
    name, said = "", list[str]()
    for line in [*lines, "FINIS"]:
        heading = STYLES[style].match(line)
        new_act, title = ACT.match(line), TITLE.match(line)
        speaks = within and heading is not None and not new_act and not title and (style != "colon" or after_empty)
        if (speaks or new_act or title) and name:
            yield play, name, said
        if new_act:
            number = new_act[1].lower()
            play += number in FIRST and act not in FIRST
            act, within, name = number, True, ""
        elif title:
            within = within and not (acts and (CAST.match(line) or line.strip() in ("THE END", "FINIS")))
            name = ""
        elif speaks and heading is not None:
            name, said = " ".join(heading[1].split()).rstrip("."), [heading[2].strip()]
        elif name and line.strip() and not DIRECTION.match(line):
            said.append(line.strip())
        after_empty = not line.strip()
