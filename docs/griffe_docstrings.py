"""Docstrings for the reference: doctests as code, and Sphinx's roles as plain names."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1 *\S.*)*", re.MULTILINE)
ROLE = re.compile(r":\w+:`[~.]?(?:\w+\.)*(\w+)`")


class Docstrings(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring:
            text = DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", obj.docstring.value)
            obj.docstring.value = ROLE.sub(r"`\1`", text)
