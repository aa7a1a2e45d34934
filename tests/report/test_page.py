"""The page around the figures."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from pathlib import Path, PurePath
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from lightning_fedhpo.report import page
from tests.report.browser import Browser


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
        page.sortable([evil, f'"\n{evil}'], [[evil, f'">{evil}']]),
        page.details(evil, page.code(evil)),
        page.figure(evil, evil, evil, {"data": [{"name": evil}], "layout": {}}),
    ]
    html = page.page(evil, evil, body)
    assert "<script>alert" not in html
    assert html.count("<script>") == 2, "Plotly and our own"
    (spec,) = re.findall(r'<script type="application/json">(.*?)</script>', html)
    assert json.loads(spec)["data"][0]["name"] == evil


def test_a_table_sorts_by_click_and_by_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    rows = [(0, 10.0, "b"), (1, None, "a"), (2, 9.0, "c"), (3, math.nan, "A"), (4, 1e-5, None)]
    (tmp_path / "page.html").write_text(page.page("", "", [page.sortable(["arm", "client\nlr", "optimizer"], rows)]))
    browser.open(tmp_path / "page.html", 390)

    def order() -> str:
        cells = "[...document.querySelectorAll('tbody tr')].map(row => row.cells[0].textContent).join('')"
        return str(browser.ask(cells))

    arm, rate, kind = (f"document.querySelectorAll('th button')[{place}]" for place in range(3))
    found = [order()]
    for head in (rate, rate, kind, arm):
        browser.ask(f"{head}.click()")
        found.append(order())
    assert found == ["01234", "42013", "02413", "13024", "01234"], "blanks are the last in every order"
    browser.ask(f"{rate}.focus()")
    browser.press_enter()
    assert order() == "42013"
    assert (
        browser.ask("[...document.querySelectorAll('th')].map(head => head.ariaSort).join()") == "none,ascending,none"
    )
    assert browser.complaints == []
