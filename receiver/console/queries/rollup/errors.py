"""Derivation of two rollups whose rows name single spans: errors, and the first and last span of deployments.

    otel_errors         a row for each span with an error, with the type and the template of its message
    otel_deployments    the first and the last span of each deployment and service, and their numbers

About one span in a hundred has an error, so a question about errors reads a hundredth of the table.

Invariant: the total row of an hour has the digest of the statement that derived its rows, so rows of another
version of a template are never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from receiver.console.queries.filters.attribute_sql import lookup
from receiver.console.queries.message_template import TEMPLATE_PARAMETERS, template_sql
from receiver.console.queries.rollup.tables import ATTRIBUTE_TABLES, ERRORS, SEEN, rollup_compose
from receiver.engine.promoted import promoted_columns
from receiver.engine.sql_text import BLOCK_BYTES, Sql, compose, names
from receiver.engine.store import Parameters, Store

_EXCEPTION = Sql("Events.Attributes[indexOf(Events.Name, 'exception')]")
"""Attributes of the first exception; empty if there is none."""
IS_ERROR: Final = Sql("(StatusCode = 'Error' OR has(Events.Name, 'exception'))")
ERROR_MESSAGE: Final = template_sql(
    compose(
        "if({exception}['exception.message'] != '', {exception}['exception.message'], StatusMessage)",
        exception=_EXCEPTION,
    )
)
"""Template of the message. It needs `TEMPLATE_PARAMETERS`."""
SEEN_KEYS: Final = ("ProjectId", "DeploymentId", "ServiceName")
ERROR_KEYS: Final = (*SEEN_KEYS, "SpanName", "SpanKind", "StatusCode")
"""Columns of the rows by which a filter can select."""
_OF_SPAN = names((*ERROR_KEYS, "Timestamp", "TraceId", "SpanId", "SampleWeight"))
ERROR_COLUMNS: Final = compose("{of_span}, Type, Message", of_span=_OF_SPAN)
_ERRORS = """
INSERT INTO {errors} (Hour, Row, {columns}, Source, Version, Spans)
SELECT toDateTime({hour} * {hour_s}, 'UTC'), rowNumberInAllBlocks(), {of_span}, '{table}', {version:UInt64}, 1
FROM {table}
WHERE {is_derived} AND {is_error}
{settings}, preferred_block_size_bytes = {block_bytes}
"""
_SEEN = rollup_compose(
    """
INSERT INTO {seen} (Hour, {keys}, First, Last, Errors, Source, Version, Spans)
SELECT
    toDateTime({hour} * {hour_s}, 'UTC') AS hour, {keys},
    min(Timestamp), max(Timestamp), countIf(StatusCode = 'Error'), '{table}', {version:UInt64}, count()
FROM {table}
WHERE {is_derived}
GROUP BY hour, {keys}
{settings}
""",
    seen=SEEN,
    keys=names(SEEN_KEYS),
)


def error_type(store: Store) -> Sql:
    """Return the expression for the type of an error."""
    found = lookup(promoted_columns(store), "span", "error.type", "'error.type'")
    template = "if({type} != '', {type}, ifNull(toString({value}), ''))"
    type_ = compose("{exception}['exception.type']", exception=_EXCEPTION)
    return compose(template, type=type_, value=found.value_sql)


def error_of_span(store: Store) -> Sql:
    """Return the expressions that a span has for `ERROR_COLUMNS`."""
    template = "{of_span}, {type} AS Type, {message} AS Message"
    return compose(template, of_span=_OF_SPAN, type=error_type(store), message=ERROR_MESSAGE)


def definitions(store: Store) -> dict[Sql, str]:
    """Return the rollups whose hours have a total row, and what defines the other rows."""
    # A digest only of the rows by span: the attributes are named so that an operator can compare them.
    digests = {table: _digest(statement) for table, statement in _statements(store).items()}
    return {**dict.fromkeys(ATTRIBUTE_TABLES, promoted_columns(store).entries), **digests}


def derive_errors(store: Store, parameters: Parameters) -> None:
    """Derive the errors and the deployments of hours. `parameters`: as for the other rollups."""
    for statement in _statements(store).values():
        store.rows(store.layout.on_shards(statement), {**parameters, **TEMPLATE_PARAMETERS})


def _statements(store: Store) -> Mapping[Sql, Sql]:
    errors = rollup_compose(
        _ERRORS,
        errors=ERRORS,
        columns=ERROR_COLUMNS,
        of_span=error_of_span(store),
        is_error=IS_ERROR,
        block_bytes=BLOCK_BYTES,
    )
    return {ERRORS: errors, SEEN: _SEEN}


def _digest(statement: Sql) -> str:
    text = f"{statement} {TEMPLATE_PARAMETERS}"
    return blake2b(text.encode(), digest_size=8).hexdigest()
