"""Text of SQL statements, composed of text of our own. Values travel as parameters.

    {name:Type}   parameter: stays in the text, and the engine binds its value
    {name}        piece: `compose` puts text of our own, or a number, in its place

Invariant: text from outside never becomes `Sql`. Templates are literals, mypy refuses a piece that is a
`str`, and tests/tidy/test_sql_text.py lists the modules that may declare other text to be `Sql`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NewType

from receiver.engine.limits import AGGREGATION_SETTINGS, SETTINGS, SHORT_SETTINGS
from receiver.engine.store import ALL_ROWS, COMPANION, DEPLOYMENT_EVENTS, ROW_CHECKSUM, TABLE

Sql = NewType("Sql", str)
"""A statement or a part of one."""

_PIECE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_NAME: Final = re.compile(r"[A-Za-z0-9._/-]+")


class Composer:
    """Composes statements of templates and pieces; knows the pieces that many of its templates have."""

    def __init__(self, pieces: Mapping[str, Sql | int]) -> None:
        self._pieces = pieces

    def __call__(self, template: str, /, **pieces: Sql | int) -> Sql:
        """Return the template, a literal, with its pieces."""
        known = {**self._pieces, **pieces}
        return Sql(_PIECE.sub(lambda match: str(known[match[1]]), template))

    def knowing(self, **pieces: Sql | int) -> Composer:
        """Return a composer that knows these pieces, too."""
        return Composer({**self._pieces, **pieces})


def identifier(name: str) -> Sql:
    """Return a name of our own, or the key of a promoted attribute: text that needs no quotes to be safe."""
    if not _NAME.fullmatch(name):
        raise ValueError("expected letters, digits and ._/- in a name that becomes a part of a statement")
    return Sql(name)


def names(columns: Iterable[str]) -> Sql:
    """Return names of columns, separated by commas."""
    return Sql(", ".join(map(identifier, columns)))


def joined(separator: str, parts: Iterable[Sql]) -> Sql:
    """Return the parts with a separator, a literal, between them."""
    return Sql(separator.join(parts))


def started_between(begin: str, end: str, *, is_closed: bool = False) -> Sql:
    """Return the condition for spans that started in a range of time. `begin`, `end`: names of parameters."""
    return Composer({"begin": identifier(begin), "end": identifier(end)})(
        "Timestamp >= fromUnixTimestamp64Nano({{begin}:Int64}) "
        "AND Timestamp {before} fromUnixTimestamp64Nano({{end}:Int64})",
        before=Sql("<=") if is_closed else Sql("<"),
    )


compose: Final = Composer(
    {
        "table": Sql(TABLE),
        "companion": Sql(COMPANION),
        "deployment_events": Sql(DEPLOYMENT_EVENTS),
        "row_checksum": Sql(ROW_CHECKSUM),
        "all_rows": Sql(ALL_ROWS),
        "settings": Sql(SETTINGS),
        "short_settings": Sql(SHORT_SETTINGS),
        "aggregation_settings": Sql(AGGREGATION_SETTINGS),
        "in_range": started_between("from_ns", "to_ns"),
        "in_closed_range": started_between("from_ns", "to_ns", is_closed=True),
    }
)
"""Composer with the tables, the settings of statements, and the time range of a query."""
