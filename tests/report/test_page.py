"""The page around the figures."""

from __future__ import annotations

import json
import re

from lightning_fedhpo.report import page


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
