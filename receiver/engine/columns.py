"""Check that a table still has the columns that segments fill, with the required types.

A server converts inserted values to the type of an altered column, and does not report values that the
conversion changes. An altered table is therefore refused before the INSERT, and the segments wait until it is
repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from receiver.transcode import COLUMNS

_HARMLESS = re.compile(r"LowCardinality\(|Nullable\(|, '[^']*'|\)")
"""Parts of a type that change no value: `LowCardinality`, `Nullable`, a time zone."""


def alteration(table_columns: Iterable[tuple[str, str]]) -> str:
    """Describe the first difference between the columns of a table and a segment; empty if equal."""
    types = dict(table_columns)
    for name, expected in COLUMNS:
        if name not in types:
            return f"column '{name}' is gone"
        if _without_harmless_parts(types[name]) != _without_harmless_parts(expected):
            return f"column '{name}' is {types[name]}; expected {expected}"
    return ""


def _without_harmless_parts(kind: str) -> str:
    return _HARMLESS.sub("", kind)
