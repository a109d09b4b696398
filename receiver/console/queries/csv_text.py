"""CSV from JSON values, safe for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Final

FORMULA_BEGINNINGS: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet evaluates a cell that begins with one of these."""


def csv_head(names: Iterable[str]) -> str:
    """Return the first line, without its end."""
    return _line(names)


def csv_line(values: Iterable[object]) -> str:
    """Return a line, without its end. A text that looks like a formula gets an apostrophe in front."""
    return _line(map(_cell, values))


def _line(cells: Iterable[object]) -> str:
    line = io.StringIO()
    # The writer quotes a cell with a line break only if the break is a part of its own line terminator.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


def _cell(value: object) -> object:
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"))
    # Numbers stay as they are: a negative number begins with a minus, too, and is no formula.
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_BEGINNINGS) else value
