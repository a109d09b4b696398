"""Statements of ClickHouse's own clients: parameters, questions about tables, and answers in any format.

    SELECT …                 the guard checks it, as for the API
    SHOW DATABASES, TABLES   become a SELECT from a table of `system`, which the guard checks
    DESCRIBE TABLE x         allowed if the guard accepts `SELECT * FROM x`
    EXPLAIN SELECT …         allowed if the guard accepts the SELECT

A table of `system` with paths of the host is replaced by a subquery without them, before the guard checks it.

The connection has the limits of the client, and `ROWS_FOR_CLIENTS`, which hides from the guard what it has to
know: it reads the engine's names from the store. Its own queries return more rows than a client may allow, so
a lower limit of the result needs another connection.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from receiver.console.queries.limits import SPANS_MAX, within_time
from receiver.console.queries.raw_sql.allowed import FOR_CLIENTS, PATHS_OF, ROWS_FOR_CLIENTS
from receiver.console.queries.raw_sql.guard import BEFORE_TABLE, SYSTEM
from receiver.console.queries.raw_sql.native import NATIVE, empty_block, in_revision
from receiver.console.queries.raw_sql.statement import SETTINGS, Checked, guarded, invalid_statements
from receiver.console.queries.raw_sql.tokens import tokens_of
from receiver.engine.sql_text import Sql, compose, identifier
from receiver.engine.store import ReadOnlyConnection, Store

ROWS_MAX: Final = SPANS_MAX
"""Maximum number of rows of an answer. More are an error: the formats have no sign that rows are missing."""
LIMITS: Final[Mapping[str, float]] = {
    **{
        name: float(SETTINGS[name])
        for name in (
            *("max_execution_time", "max_memory_usage", "max_rows_to_read", "max_bytes_to_read"),
            "max_result_bytes",
        )
    },
    "max_result_rows": ROWS_MAX,
}
"""Settings that a client may lower, with their maximum."""

_RESULT_MAX: Final = {"max_result_rows": str(ROWS_MAX), "max_result_bytes": SETTINGS["max_result_bytes"]}
_SELECT: Final = "SELECT * FROM "
_SPELLED: Final = "SELECT formatQuerySingleLineOrNull({query:String})"
_NAME: Final = r"(?:[A-Za-z_][A-Za-z0-9_]*|`[A-Za-z0-9_ .-]+`)"
_SHOW: Final = re.compile(
    rf"SHOW (?P<what>DATABASES|TABLES)(?: FROM (?P<database>{_NAME}))?(?: LIKE (?P<like>'(?:[^'\\]|\\.)*'))?",
    re.DOTALL,
)
_DESCRIBE: Final = re.compile(r"DESCRIBE TABLE (?P<table>.+)", re.DOTALL)
_EXPLAIN: Final = re.compile(
    r"(?P<how>EXPLAIN(?: AST| SYNTAX| QUERY TREE| PIPELINE| ESTIMATE)?) (?P<select>.+)", re.DOTALL
)


Guard = Callable[[str], Checked]


class ClientStatement(NamedTuple):
    """A statement of a client."""

    text: str
    form: str
    """The engine's name of the format of the answer."""
    revision: int = 0
    """Revision of the native protocol that the client reads; 0 means the format `Native` in a file."""
    texts: Mapping[str, str] = {}
    """Values of its parameters, escaped as the engine reads them."""
    settings: Mapping[str, str] = {}
    """Limits of the client, each at most as in `LIMITS`, and harmless settings."""

    @property
    def digest(self) -> str:
        """Return a short hash, by which a log can name the statement without its text."""
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()[:16]


def answer(store: Store, asked: ClientStatement) -> Iterator[bytes]:
    """Yield the answer in the format of the client. Raises `InvalidStatement` unless the guard accepts it."""
    settings = {**SETTINGS, **_RESULT_MAX, "additional_table_filters": ROWS_FOR_CLIENTS, **asked.settings}
    return within_time(_pieces(store, asked, settings), seconds_max=float(settings["max_execution_time"]))


def _pieces(store: Store, asked: ClientStatement, settings: Mapping[str, str]) -> Iterator[bytes]:
    with invalid_statements(), ExitStack() as connections:
        connection = connections.enter_context(store.read_only({**settings, **_RESULT_MAX}))
        guard = partial(guarded, connection, texts=asked.texts, extras=FOR_CLIENTS, names_from=store)
        checked = _checked(connection, guard, asked.text)
        if not _RESULT_MAX.keys().isdisjoint(asked.settings):
            connection = connections.enter_context(store.read_only(settings))
        # The engine streams the rows of a SELECT only.
        if not checked.text.startswith(_SELECT):
            pieces = iter((connection.whole(checked.text, asked.form, checked.texts),))
        elif asked.form == NATIVE:
            pieces = _native(connection, checked)
        else:
            pieces = connection.pieces(checked.text, asked.form, checked.texts)
        yield from in_revision(pieces, asked.revision) if asked.form == NATIVE else pieces


def _native(connection: ReadOnlyConnection, checked: Checked) -> Iterator[bytes]:
    """Yield blocks; one without rows if the answer has none, because clients read the columns from it."""
    is_empty = True
    for piece in connection.pieces(checked.text, NATIVE, checked.texts):
        is_empty = False
        yield piece
    if is_empty:
        columns = connection.rows(f"DESCRIBE TABLE ({checked.text})", texts=checked.texts)
        yield empty_block((str(name), str(kind)) for name, kind, *_ in columns)


def _checked(connection: ReadOnlyConnection, guard: Guard, text: str) -> Checked:
    [(spelled,)] = connection.rows(_SPELLED, {"query": text})
    # The guard says what is wrong with a text that the engine cannot parse.
    text = without_paths(spelled) if spelled else text
    if match := _DESCRIBE.fullmatch(text):
        checked = guard(f"{_SELECT}{match['table']}")
        return checked._replace(text=Sql(f"DESCRIBE TABLE {checked.text.removeprefix(_SELECT)}"))
    if match := _EXPLAIN.fullmatch(text):
        checked = guard(match["select"])
        return checked._replace(text=Sql(f"{match['how']} {checked.text}"))
    if match := _SHOW.fullmatch(text):
        text = _listing(match)
    checked = guard(text)
    return checked._replace(text=compose("SELECT * FROM ({checked})", checked=checked.text))


def without_paths(statement: str) -> str:
    """Return a statement in which no table of `system` has columns with paths. Raises `InvalidStatement`."""
    tokens, parts, begin = tokens_of(statement), [], 0
    for place in range(len(tokens) - 3):
        before, database, dot, table, *after = tokens[place : place + 5]
        is_system = before.text in BEFORE_TABLE and (database.text, dot.text) == (SYSTEM, ".")
        if is_system and table.text in PATHS_OF:
            name, paths = table.text, PATHS_OF[table.text]
            alias = "" if after and after[0].text == "AS" else f" AS {name}"
            subquery = compose(
                "SELECT * EXCEPT ({paths}) FROM system.{name}", paths=paths, name=identifier(name)
            )
            parts += [statement[begin : before.end], f" ({subquery}){alias}"]
            begin = table.end
    return "".join([*parts, statement[begin:]])


def _listing(match: re.Match[str]) -> str:
    """Return the SELECT for a SHOW statement. The guard checks it, like any other."""
    table = match["what"].lower()
    conditions = [f"name LIKE {match['like']}"] if match["like"] else []
    if match["database"]:
        conditions.append(f"database = '{match['database'].strip('`')}'")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    listing = compose("SELECT name FROM system.{table}", table=identifier(table))
    return f"{listing}{where} ORDER BY name"
