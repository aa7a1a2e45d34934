"""The page around the figures."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import PurePath
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from lightning_fedhpo.report import page


@pytest.mark.parametrize("name", ["javascript:alert(1)", "http:", "a#b", "a?b", "100%25", 'a"b', "it's & <b>", "ü b"])
def test_a_link_leads_to_the_file_below_the_page(name: str) -> None:
    (address,) = re.findall(r'href="([^"]*)"', page.links([("a run", PurePath(name) / "report.html")]))
    found = urlsplit(urljoin("file:///sweep/report.html", unescape(address)))
    assert (found.scheme, unquote(found.path)) == ("file", f"/sweep/{name}/report.html")
    assert not found.query and not found.fragment


def test_what_comes_from_users_is_text() -> None:
    evil = "</script><script>alert(1)</script>"
    body = [
        page.section(evil, page.boxes(page.box(evil, page.paragraph(evil)))),
        page.table([evil], [[evil, f"{evil}\n{evil}"]]),
        page.details(evil, page.code(evil)),
        page.figure(evil, evil, evil, {"data": [{"name": evil}], "layout": {}}),
    ]
    html = page.page(evil, evil, body)
    assert "<script>alert" not in html
    assert html.count("<script>") == 2, "Plotly and our own"
    (spec,) = re.findall(r'<script type="application/json">(.*?)</script>', html)
    assert json.loads(spec)["data"][0]["name"] == evil
