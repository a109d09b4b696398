"""Formatter of tables for a terminal. Escapes control characters, which a sender's text may contain."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Container, Iterator, Sequence

from receiver.cli.shell.text_width import cut_to_width, padded, text_width
from receiver.logs import harmless_text

CELL_COLUMNS_MAX = 48
"""Maximum width of a cell; longer text is truncated."""


def lines_of(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Container[int] = ()
) -> Iterator[str]:
    """Yield the lines of a table, with columns as wide as their cells. `numbers`: right-aligned columns."""
    table = [list(head), *([shown_text(cell) for cell in row] for row in rows)]
    widths = [max(text_width(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = [
            padded(cell, width, is_number=column in numbers)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def shown_text(text: str) -> str:
    """Return the text truncated to the width of a cell, with control characters escaped."""
    # Escaped before it is cut, because escapes make the text longer.
    return cut_to_width(harmless_text(text), CELL_COLUMNS_MAX)


def lines_with_deployment(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Container[int] = ()
) -> Iterator[str]:
    """Yield the lines of a table whose last column is the deployment.

    A terminal that is too narrow shows the deployment only if the rows have different deployments.
    """
    lines = list(lines_of(head, rows, numbers=numbers))
    deployments = {row[-1] for row in rows}
    is_shown = len(deployments) > 1 or (any(deployments) and max(map(text_width, lines)) <= columns_max())
    return iter(lines) if is_shown else lines_of(head[:-1], [row[:-1] for row in rows], numbers=numbers)


def columns_max() -> float:
    """Return the width of the terminal. A file or a pipe has no limit of width."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None if it is closed
    return shutil.get_terminal_size().columns if is_terminal else math.inf
