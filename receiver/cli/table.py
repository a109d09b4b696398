"""Formatter of tables for a terminal. Escapes control characters, which a sender's text may contain."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from receiver.logs import harmless_text

CELL_CHARS_MAX = 48
"""Maximum width of a cell; longer text is truncated."""


def lines_of(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Container[int] = ()
) -> Iterator[str]:
    """Yield the lines of a table, with columns as wide as their cells. `numbers`: right-aligned columns."""
    shown = [list(head), *([shown_text(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    for row in shown:
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def shown_text(text: str) -> str:
    """Return the text truncated to the width of a cell, with control characters escaped."""
    # Escaped before it is cut, because escapes make the text longer.
    harmless = harmless_text(text)
    return harmless if len(harmless) <= CELL_CHARS_MAX else harmless[: CELL_CHARS_MAX - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Return the count with its noun: `1 span`, `2 spans`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration_text(duration_ns: int) -> str:
    """Return the duration in the largest unit that gives at least 1."""
    for unit, size_ns in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if duration_ns >= size_ns:
            return (
                f"{duration_ns / size_ns:.3g} {unit}" if duration_ns < 10**12 else f"{duration_ns // 10**9} s"
            )
    return f"{duration_ns} ns"
