"""Execution of SQL statements of operators, once the guard has accepted them.

format     the engine parses the text and returns its own spelling; several statements, or none, are refused
check      tokens, then the query tree
execute    `SELECT * FROM (…) LIMIT n`, on a connection of its own, with limits and `readonly = 1`
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Final, NamedTuple

from receiver.console.queries.csv_text import csv_head, csv_line
from receiver.console.queries.export import ExportFormat
from receiver.console.queries.filters.filter_values import unusable_character
from receiver.console.queries.limits import LimitedLines, parse_limit, within_time
from receiver.console.queries.question import reject_unknown_parameters
from receiver.console.queries.raw_sql.allowed import CURRENT_ROWS, NO_EXTRAS, Extras
from receiver.console.queries.raw_sql.catalog import read_catalog
from receiver.console.queries.raw_sql.guard import check_placeholders, check_tokens, name_parts
from receiver.console.queries.raw_sql.query_tree import check_parsed, check_resolved
from receiver.console.queries.raw_sql.tokens import Kind, tokens_of
from receiver.engine.advice import Login, quoted
from receiver.engine.sql_text import (
    BYTES_READ_MAX,
    MEMORY_BYTES_MAX,
    ROWS_READ_MAX,
    SECONDS_MAX,
    Sql,
    compose,
)
from receiver.engine.store import ReadOnlyConnection, Store
from receiver.errors import InvalidStatement, MalformedBody, StoreTrouble

QUERY_CHARS_MAX = 16_000
LINES_DEFAULT = 1_000
LINES_MAX = 100_000
RESULT_BYTES_MAX = 512 << 20
"""Maximum size of an answer in the engine."""
SPILLED_BYTES_MAX = 2 << 30
"""Disk that a statement may use for groups and sorted rows."""
BLOCK_ROWS_MAX = 8_192
"""Rows that the engine reads at once: one granule."""
RANGE_ELEMENTS_MAX = 10_000_000
"""Elements of the arrays that `range` makes for one block."""

FORMATS: Final = (ExportFormat.JSONL, ExportFormat.CSV, ExportFormat.PARQUET)

SETTINGS: Final[Mapping[str, str]] = {
    "session_timezone": "UTC",
    "output_format_json_quote_64bit_integers": "0",
    "output_format_json_escape_forward_slashes": "0",
    "max_execution_time": str(SECONDS_MAX),
    "timeout_before_checking_execution_speed": "0",
    "timeout_overflow_mode": "throw",
    "max_memory_usage": str(MEMORY_BYTES_MAX),
    "max_rows_to_read": str(ROWS_READ_MAX),
    "max_bytes_to_read": str(BYTES_READ_MAX),
    "read_overflow_mode": "throw",
    # The LIMIT around the statement comes first: this is for a LIMIT that an engine ignores.
    "max_result_rows": str(LINES_MAX + 1),
    "max_result_bytes": str(RESULT_BYTES_MAX),
    "result_overflow_mode": "throw",
    "max_temporary_data_on_disk_size_for_query": str(SPILLED_BYTES_MAX),
    # The engine looks for the time limit and for a cancellation after each block of rows only.
    "max_block_size": str(BLOCK_ROWS_MAX),
    "function_range_max_elements_in_block": str(RANGE_ELEMENTS_MAX),
    "max_query_size": str(4 * QUERY_CHARS_MAX),
    "max_ast_depth": "500",
    "max_ast_elements": "20000",
    "max_expanded_ast_elements": "100000",
    "max_subquery_depth": "50",
    "max_columns_to_read": "1000",
    "max_recursive_cte_evaluation_depth": "1000",
    "allow_introspection_functions": "0",
    "use_query_cache": "0",
    "additional_table_filters": CURRENT_ROWS,
}
"""Settings of the connection that executes a statement. `readonly` follows, so that it cannot change them."""

_FORMAT: Final = """
SELECT formatQuerySingleLineOrNull({query:String}) AS once,
       formatQuerySingleLineOrNull(ifNull(once, '')) AS twice,
       formatQuerySingleLineOrNull(concat('SELECT * FROM (', ifNull(once, ''), ') LIMIT 1')) AS wrapped
"""
_EXPLAIN_SYNTAX: Final = "SELECT formatQuerySingleLine({query:String})"

_SYNTAX_ERROR: Final = 62
_ABOUT_THE_TEXT: Final = frozenset({_SYNTAX_ERROR, 42, 43, 46, 47, 179, 184, 206, 207, 215, 386})
"""Errors that the engine finds before it reads a row, so that their texts contain no values of rows.

SYNTAX_ERROR, NUMBER_OF_ARGUMENTS_DOESNT_MATCH, ILLEGAL_TYPE_OF_ARGUMENT, UNKNOWN_FUNCTION,
UNKNOWN_IDENTIFIER, MULTIPLE_EXPRESSIONS_FOR_ALIAS, ILLEGAL_AGGREGATION, ALIAS_REQUIRED,
AMBIGUOUS_IDENTIFIER, NOT_AN_AGGREGATE, NO_COMMON_TYPE.
"""
_ABOUT_THE_STORE: Final = frozenset({60, 81, 158, 159, 164, 192, 193, 194, 202, 241, 307, 394, 396, 497, 516})
"""Errors that the API reports alike for all queries: limits, cancellation, missing tables and rights."""


class Column(NamedTuple):
    """A column of an answer; `type` is in the engine's spelling."""

    name: str
    type: str


class SqlQuery(NamedTuple):
    """A statement, the maximum number of lines of its answer, and their format."""

    text: str
    limit: int = LINES_DEFAULT
    form: ExportFormat = ExportFormat.JSONL

    @property
    def digest(self) -> str:
        """Return a short hash, by which a log can name the statement without its text."""
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()[:16]


def parse_sql(query: Mapping[str, str]) -> SqlQuery:
    """Check the parameters of a call. Raises `MalformedBody`."""
    reject_unknown_parameters(query, ("query", "limit", "format"))
    text = query.get("query", "")
    if not text.strip():
        raise MalformedBody("query is missing; expected a SELECT statement", field="query")
    if len(text) > QUERY_CHARS_MAX:
        raise MalformedBody(f"query: expected at most {QUERY_CHARS_MAX} characters", field="query")
    if unusable_character(text) is not None:
        raise MalformedBody("query: expected text in UTF-8 without NUL", field="query")
    form = query.get("format", ExportFormat.JSONL)
    if form not in FORMATS:
        raise MalformedBody(f"format: expected one of {', '.join(FORMATS)}", field="format")
    return SqlQuery(text, parse_limit(query.get("limit", str(LINES_DEFAULT)), LINES_MAX), ExportFormat(form))


def sql(
    store: Store, asked: SqlQuery, on_columns: Callable[[list[Column]], object] | None = None
) -> LimitedLines:
    """Answer a statement. The lines raise `InvalidStatement` unless the guard accepts it.

    `on_columns`: called with the columns before the first line, also if there is none.
    """
    return LimitedLines(within_time(_lines(store, asked, on_columns)), asked.limit)


def sql_parquet(store: Store, asked: SqlQuery) -> Iterator[bytes]:
    """Yield the answer to a statement as a Parquet file. Raises as the lines of `sql` do."""
    with _checked(store, asked) as (connection, statement):
        yield from within_time(connection.parquet(_limited(statement, asked.limit)))


def sql_csv(store: Store, asked: SqlQuery) -> Iterator[bytes]:
    """Yield the answer to a statement as CSV with a line of names. Raises as the lines of `sql` do."""
    columns: list[Column] = []
    lines = sql(store, asked, columns.extend).pieces()
    # The first piece, because the columns are known only then.
    first = next(lines, b"")
    yield f"{csv_head(column.name for column in columns)}\n".encode()
    for piece in chain((first,), lines):
        # Not orjson, which reads integers of more than 64 bits as floats.
        rows = map(json.loads, piece.splitlines())
        yield "".join(f"{csv_line(row.values())}\n" for row in rows).encode()


def _lines(
    store: Store, asked: SqlQuery, on_columns: Callable[[list[Column]], object] | None
) -> Iterator[bytes]:
    with _checked(store, asked) as (connection, statement):
        if on_columns is not None:
            found = connection.rows(compose("DESCRIBE TABLE (SELECT * FROM ({checked}))", checked=statement))
            on_columns([Column(str(name), str(kind)) for name, kind, *_ in found])
        yield from connection.lines(_limited(statement, asked.limit + 1))


def _limited(statement: Sql, limit: int) -> Sql:
    return compose("SELECT * FROM ({checked}) LIMIT {limit}", checked=statement, limit=limit)


@contextmanager
def _checked(store: Store, asked: SqlQuery) -> Iterator[tuple[ReadOnlyConnection, Sql]]:
    """Open a connection, and return it with the engine's spelling of the statement."""
    with invalid_statements(), store.read_only(SETTINGS) as connection:
        yield connection, guarded(connection, asked.text).text


class Checked(NamedTuple):
    """A statement that is safe to execute."""

    text: Sql
    """The engine's spelling."""
    texts: Mapping[str, str] = {}
    """The values of its placeholders."""


def guarded(
    connection: ReadOnlyConnection,
    text: str,
    texts: Mapping[str, str] | None = None,
    extras: Extras = NO_EXTRAS,
    names_from: Store | None = None,
) -> Checked:
    """Return a statement that is safe to execute. Raises `InvalidStatement`.

    `names_from`: where the engine's names are read if the connection does not show all of them.

    `texts`: values for placeholders. Those that the statement does not contain are left out of the result,
    because the driver would format the statement with them.
    """
    statement = _formatted(connection, text)
    tokens = tokens_of(statement)
    values = {name: (texts or {})[name] for name in check_placeholders(tokens, texts or {})}
    names = (part for token in tokens if token.kind is Kind.NAME for part in name_parts(token.text))
    catalog = read_catalog(names_from or connection, names, extras)
    check_tokens(tokens, catalog)
    # In parentheses, because the driver asks for the columns only if a text ends with LIMIT 0.
    check_parsed(_tree(connection, f"run_passes = 0 ({statement})", values), catalog)
    check_resolved(_tree(connection, f"passes = 1 ({statement})", values), catalog)
    return Checked(Sql(statement), values)


def _tree(connection: ReadOnlyConnection, explained: str, texts: Mapping[str, str]) -> list[str]:
    return [str(line) for (line,) in connection.rows(f"EXPLAIN QUERY TREE {explained}", texts=texts)]


def _formatted(connection: ReadOnlyConnection, text: str) -> str:
    """Return the engine's spelling of a single statement that can be the subquery of another one."""
    [(once, twice, wrapped)] = connection.rows(_FORMAT, {"query": text})
    if once is None:
        # Raises with the engine's message.
        connection.rows(_EXPLAIN_SYNTAX, {"query": text})
    # A spelling that reads differently the second time would be executed as something else than was checked.
    if once is None or once != twice or wrapped != _limited(Sql(once), 1):
        raise InvalidStatement("expected a single SELECT statement, without INTO, FORMAT and SETTINGS")
    return str(once)


@contextmanager
def invalid_statements() -> Iterator[None]:
    """Raise `InvalidStatement` for an error about the statement, with text that contains no values."""
    try:
        yield
    except StoreTrouble as trouble:
        if trouble.code is None or trouble.code in _ABOUT_THE_STORE or trouble.advice:
            raise
        if trouble.code not in _ABOUT_THE_TEXT:
            raise InvalidStatement(f"the store: {trouble.label}") from trouble
        # The rest of the message repeats the statement.
        text = quoted(str(trouble).partition(" In scope ")[0], Login())
        raise InvalidStatement(f"the store: {trouble.label}: {text}") from trouble
