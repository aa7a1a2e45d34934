"""A page of HTML in one file: no network, readable on a phone, in the dark and on paper.

Every text that goes in is escaped here. The page's own rule (Content-Security-Policy) forbids every request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from lightning_fedhpo.report.words import number_text

_RULE = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

_CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --box: #f4f6f8; --line: #d5dbe1;
  --accent: #0072b2; --warn: #fff4d6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #a5adb6; --paper: #15181c; --box: #1f2429;
  --line: #39414a; --accent: #56b4e9; --warn: #3b3111; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #333; --paper: #fff; --box: #fff; --line: #999;
  --accent: #0072b2; --warn: #fff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.75rem; padding-bottom: 0.25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 0.25rem; }
h3, li { overflow-wrap: anywhere; }
p { margin: 0.5rem 0; max-width: 75ch; overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); font-size: 0.9rem; }
.boxes { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem;
  margin-top: 1rem; }
.box, figure, details { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: 0.9rem 1rem;
  min-width: 0; }
.warn { background: var(--warn); }
figure, details { margin: 1rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.9rem 0.2rem 0; text-align: left; vertical-align: top; white-space: nowrap; }
th { font-weight: 600; }
.tall { max-height: 32rem; overflow-y: auto; }
.tall thead th { position: sticky; top: 0; background: var(--box); vertical-align: bottom; }
.sorts { font-size: 0.85rem; }
.sorts th, .sorts td { padding-right: 0.55rem; }
th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
th small { display: block; color: var(--soft); font-weight: 400; }
th[aria-sort=ascending] button::after { content: "\\25B2"; }
th[aria-sort=descending] button::after { content: "\\25BC"; }
th button::after { padding-left: 0.3em; font-size: 0.7em; }
tbody th { white-space: normal; overflow-wrap: break-word; max-width: min(24rem, 45vw); }
tbody tr { border-top: 1px solid var(--line); }
a { color: var(--accent); }
pre { overflow-x: auto; margin: 0.5rem 0; padding: 0.75rem; border: 1px solid var(--line); border-radius: 6px;
  font-size: 0.85rem; line-height: 1.4; }
summary { cursor: pointer; font-weight: 600; }
td small { display: block; color: var(--soft); }
.plot { width: 100%; }
@media (max-width: 600px) { th, td { padding-right: 0.6rem; } figure { padding: 0.75rem 0.4rem; } }
@media print { main { padding: 0; max-width: none; } .box, figure { break-inside: avoid; } h2 { break-after: avoid; }
  .plot { width: 680px; } .tall { max-height: none; } pre { white-space: pre-wrap; } }
"""

_SORT = """
function compared(a, b, up) {
  if (a === "" || b === "") return (a === "") - (b === "");
  return (Number.isNaN(a - b) ? a.localeCompare(b) : a - b) * (up ? 1 : -1);
}
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, place) => head.firstChild.addEventListener("click", () => {
    const up = head.ariaSort !== "ascending", key = row => row.cells[place].dataset.sort;
    for (const one of heads) one.ariaSort = one !== head ? "none" : up ? "ascending" : "descending";
    body.append(...[...body.rows].sort((a, b) => compared(key(a), key(b), up)));
  }));
}
"""

# Plotly draws in fixed colours and sizes: again when the colours of the page or its paper change.
_DRAW = """
const plots = [...document.querySelectorAll(".plot")];
function wrapped(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    if (lines[last] && lines[last].length + word.length > width) lines.push(word);
    else lines[last] += (lines[last] ? " " : "") + word;
  }
  return lines;
}
function draw() {
  const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
  const touch = matchMedia("(hover: none)").matches, line = colour("--line");
  for (const plot of plots) {
    const text = plot.nextElementSibling.textContent.replaceAll('"#000000"', JSON.stringify(colour("--ink")));
    const { data, layout } = JSON.parse(text), ticks = layout.xaxis.ticktext;
    plot.style.minWidth = ticks ? 60 + 75 * ticks.length + "px" : "";
    const width = plot.clientWidth, narrow = width < 560;
    const named = [...data, ...layout.shapes].filter(one => one.showlegend);
    let longest = 0, rows = 0;
    for (const one of named) {
      const lines = wrapped(one.name, width / 8);
      one.name = lines.join("<br>");
      rows += lines.length;
      longest = Math.max(longest, ...lines.map(one => one.length));
    }
    const columns = Math.max(1, Math.floor(width / (7 * longest + 60)));
    const places = 60 + 18 * (layout.yaxis.ticktext || []).length;
    const height = Math.max(narrow ? 300 : 370, places) + 19 * (columns > 1 ? Math.ceil(rows / columns) : rows);
    plot.style.height = height + "px";
    Object.assign(layout, { width, height, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: narrow ? 11 : 13, color: colour("--ink") },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") },
      hoverlabel: { bgcolor: colour("--paper"), bordercolor: line, font: { color: colour("--ink") }, align: "left" } });
    for (const axis of [layout.xaxis, layout.yaxis]) {
      Object.assign(axis, { gridcolor: line, zerolinecolor: line });
      axis.title.text = wrapped(axis.title.text, (narrow ? 250 : 400) / 7).join("<br>");
    }
    if (touch) layout.dragmode = false;
    Plotly.newPlot(plot, data, layout, { displaylogo: false, displayModeBar: touch ? false : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"] });
  }
}
draw();
let drawn = document.body.clientWidth;
addEventListener("resize", () => {
  if (document.body.clientWidth === drawn) return;
  drawn = document.body.clientWidth;
  draw();
});
for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", draw);
"""


def page(title: str, subtitle: str, body: Iterable[str]) -> str:
    """Return a whole page; `body` is HTML, made by the functions below."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        way_out = 'pip install "lightning-fedhpo[report]", then `fedhpo-report <folder>`'
        raise ModuleNotFoundError(f"a report's figures need plotly: {way_out}.") from error
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_RULE}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_CSS}</style></head><body><main>",
            f'<h1>{escape(title)}</h1><p class="soft">{escape(subtitle)}</p>',
            *body,
            f"</main><script>{get_plotlyjs()}</script><script>{_SORT}{_DRAW}</script></body></html>\n",
        ]
    )


def section(title: str, *body: str) -> str:
    """Return a heading with what stands below it."""
    return f"<section><h2>{escape(title)}</h2>{''.join(body)}</section>"


def boxes(*content: str) -> str:
    """Return boxes side by side where there is room."""
    return f'<div class="boxes">{"".join(content)}</div>'


def box(title: str, *body: str, warns: bool = False) -> str:
    """Return a box with a small heading."""
    return f'<div class="box{" warn" * warns}"><h3>{escape(title)}</h3>{"".join(body)}</div>'


def paragraph(text: str, soft: bool = False) -> str:
    """Return a paragraph.

    >>> paragraph("lr < 0.1")
    '<p>lr &lt; 0.1</p>'
    """
    kind = ' class="soft"' if soft else ""
    return f"<p{kind}>{escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls inside its box. The first cell of a row names it.

    A cell's second line is small. Without a head there is no line for it.
    """
    top = f"<thead><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr></thead>" if head else ""
    lines = (f"<tr><th>{escape(first)}</th>{''.join(map(_cell, rest))}</tr>" for first, *rest in rows)
    return f'<div class="scroll"><table>{top}<tbody>{"".join(lines)}</tbody></table></div>'


def _cell(text: str) -> str:
    first, _, second = map(escape, text.partition("\n"))
    return f"<td>{first}<small>{second}</small></td>" if second else f"<td>{first}</td>"


def sortable(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table that is sorted by a click on a column's head, or by the keyboard; at first by the first column.

    A head's first line is small if it has two. A cell is a number, a text, or None, which is the last in every order.
    """
    orders = ["ascending", *["none"] * (len(head) - 1)]
    names = (
        f'<th aria-sort="{order}"><button>{_small_first(one)}</button></th>'
        for order, one in zip(orders, head, strict=True)
    )
    lines = (f"<tr>{''.join(map(_sorted_cell, row))}</tr>" for row in rows)
    top = f"<thead><tr>{''.join(names)}</tr></thead>"
    return f'<div class="scroll tall"><table class="sorts">{top}<tbody>{"".join(lines)}</tbody></table></div>'


def _small_first(text: str) -> str:
    first, _, second = map(escape, text.partition("\n"))
    return f"<small>{first}</small>{second}" if second else first


def _sorted_cell(value: Any) -> str:
    blank = value is None or (isinstance(value, float) and not math.isfinite(value))
    return f'<td data-sort="{"" if blank else escape(str(value))}">{escape(number_text(value))}</td>'


def code(text: str) -> str:
    """Return a block of code."""
    return f"<pre>{escape(text)}</pre>"


def links(targets: Iterable[tuple[str, PurePath | None]]) -> str:
    """Return a list of links by text and file, whose path is relative to the page's; without a file only the text.

    A path is encoded, so that none of its names is taken for a scheme, a query or an anchor.

    >>> links([("a < b", PurePath("javascript:1/#2.html")), ("c", None)])
    '<ul><li><a href="javascript%3A1/%232.html">a &lt; b</a></li><li>c</li></ul>'
    """
    items = (f'<a href="{quote(bytes(to))}">{escape(text)}</a>' if to else escape(text) for text, to in targets)
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def details(title: str, *body: str) -> str:
    """Return what is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{''.join(body)}</details>"


def figure(name: str, title: str, caption: str, drawn: Mapping[str, Any]) -> str:
    """Return a figure; `drawn` is Plotly's ``{"data": ..., "layout": ...}``."""
    spec = json.dumps(drawn, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        f'<figure id="{escape(name)}"><h3>{escape(title)}</h3><figcaption>{escape(caption)}</figcaption>'
        f'<div class="scroll"><div class="plot"></div><script type="application/json">{spec}</script></div></figure>'
    )
