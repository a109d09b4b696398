"""Formatter of tables for a terminal. Escapes control characters, which a sender's text may contain.

A table that is wider than the terminal loses columns, then the ends of its texts; `--wide` shows all.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Container, Iterator, Sequence
from textwrap import fill
from typing import Any, Final

import click

from receiver.cli.shell.text_width import cut_to_width, padded, text_width
from receiver.printable import harmless_text
from receiver.sizes import duration_text

CELL_COLUMNS_MAX = 48
"""Maximum width of a cell; longer text is truncated."""
CELL_COLUMNS_MIN = 12
"""Width to which a narrow terminal shortens texts before columns without an alternative are omitted."""
_GAP: Final = 2
_WIDE: Final = "receiver.cli.wide"


def ms_text(duration_ms: float) -> str:
    """Return a duration in milliseconds as `duration_text` does."""
    return duration_text(round(duration_ms * 1_000_000))


def _store_wide(context: click.Context, _parameter: click.Parameter, is_wide: bool) -> None:  # noqa: FBT001
    context.meta[_WIDE] = is_wide


WIDE: Final[dict[str, Any]] = {
    "is_flag": True,
    "expose_value": False,
    "callback": _store_wide,
    "help": "Show every column and whole texts in a table.",
}
"""Attributes of the option `--wide`."""
wide_option = click.option("--wide", **WIDE)


def lines_of(  # noqa: PLR0913 - what a narrow terminal does with each column
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Container[int] = (),
    whole: Container[int] = (),
    optional: Sequence[str] = (),
    has_note: bool = True,
) -> Iterator[str]:
    """Yield the lines of a table that fits the terminal, and print a note about omitted columns.

    `numbers`: right-aligned columns. `whole`: other columns whose cells are of no use if shortened.
    `optional`: names of columns in the order in which a narrow terminal omits them. If the others are too
    wide, texts are shortened, then the last columns omitted.
    """
    table = [list(head), *([shown_text(cell) for cell in row] for row in rows)]
    widths = {index: max(text_width(row[index]) for row in table) for index in range(len(head))}
    _omit(widths, [head.index(name) for name in optional if name in head])
    _shorten([index for index in widths if index not in numbers and index not in whole], widths)
    _omit(widths, [index for index in reversed(widths) if index])
    for row in table:
        cells = [
            padded(cut_to_width(row[index], width), width, is_number=index in numbers)
            for index, width in widths.items()
        ]
        yield "  ".join(cells).rstrip()
    omitted = [name for index, name in enumerate(head) if index not in widths]
    if omitted and has_note:
        print_note(f"not shown: {', '.join(map(harmless_text, omitted))}; --wide shows all")


def print_note(text: str) -> None:
    """Print a note on standard error, in lines that fit the terminal."""
    width = columns_max()
    fitting = text if width == math.inf else fill(text, int(width), break_on_hyphens=False)
    click.echo(fitting, err=True)


def _excess(widths: dict[int, int]) -> float:
    """Return by how much the columns are wider than the terminal; negative if there is room."""
    return sum(widths.values()) + _GAP * (len(widths) - 1) - columns_max()


def _omit(widths: dict[int, int], columns: Sequence[int]) -> None:
    """Remove columns, in this order, until the others fit."""
    for column in columns:
        if _excess(widths) <= 0:
            return
        del widths[column]


def _shorten(texts: Sequence[int], widths: dict[int, int]) -> None:
    """Reduce the widths of texts, always that of the widest text, until the columns fit."""
    while texts and _excess(widths) > 0:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= CELL_COLUMNS_MIN:
            return
        widths[widest] -= 1


def shown_text(text: str) -> str:
    """Return the text truncated to the width of a cell, with control characters escaped."""
    # Escaped before it is cut, because escapes make the text longer.
    shown = harmless_text(text)
    return shown if _is_wide() else cut_to_width(shown, CELL_COLUMNS_MAX)


def lines_with_deployment(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Container[int] = (),
    whole: Container[int] = (),
    optional: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of a table whose last column is the deployment.

    A narrow terminal omits it first if the rows have the same deployment, otherwise last.
    """
    deployments = {row[-1] for row in rows}
    if not any(deployments):
        return lines_of(
            head[:-1], [row[:-1] for row in rows], numbers=numbers, whole=whole, optional=optional
        )
    order = (*optional, head[-1]) if len(deployments) > 1 else (head[-1], *optional)
    return lines_of(head, rows, numbers=numbers, whole=whole, optional=order)


def columns_max() -> float:
    """Return the width of the terminal. A file, a pipe and `--wide` have no limit."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None if it is closed
    return shutil.get_terminal_size().columns if is_terminal and not _is_wide() else math.inf


def _is_wide() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_WIDE, False)
