"""Numbers, sizes and costs as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_COUNTS = {
    "rounds": "rounds",
    "client_updates": "client updates",
    "local_steps": "local steps",
    "examples": "examples trained on",
    "evaluations": "examples scored",
}


def number_text(value: Any) -> str:
    """Return a value in short form.

    >>> number_text(0.123456), number_text(12345), number_text(1e-5), number_text(None), number_text("adam")
    ('0.1235', '12,345', '1e-05', '-', 'adam')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def rough(value: float) -> str:
    """Return a number with two digits, for spreads and errors.

    >>> rough(0.03489), rough(1.144)
    ('0.035', '1.1')
    """
    return f"{value:.2g}"


def relative(folder: Path) -> Path:
    """Return a folder as seen from the present one; whole if it is not in there.

    >>> relative(Path.cwd() / "outputs" / "run").as_posix()
    'outputs/run'
    """
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def size(count: float) -> str:
    """Return a number of bytes with a unit.

    >>> size(512), size(3_250_000)
    ('512 B', '3.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a time in the units that fit.

    >>> duration(4.25), duration(75), duration(4000)
    ('4.2 seconds', '1 min 15 s', '1 h 6 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} seconds"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def costs(ledger: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a report shows of a ledger, but for bytes, and what it is called."""
    yield from ((label, number_text(ledger[key])) for key, label in _COUNTS.items())
    if "seconds" in ledger:
        yield "simulated time", duration(ledger["seconds"])
    if "epsilon" in ledger:
        yield "epsilon of the clients' scores", number_text(ledger["epsilon"])
