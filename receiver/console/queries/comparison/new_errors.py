"""Errors that a deployment has in its window and that another deployment does not have at all."""

from __future__ import annotations

from typing import TypedDict

import msgspec

from receiver.console.queries.comparison.deployments import IN_BOTH
from receiver.console.queries.message_template import TEMPLATE_PARAMETERS
from receiver.console.queries.rollup.errors import ERROR_MESSAGE, IS_ERROR, error_type
from receiver.console.queries.selection import Selection
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store

NEW_ERRORS_MAX = 100

_NEW_ERRORS = """
SELECT
    {type} AS type,
    {message} AS message,
    argMin(ServiceName, (Timestamp, SpanId)) AS service,
    argMin(SpanName, (Timestamp, SpanId)) AS name,
    argMin(TraceId, (Timestamp, SpanId)) AS trace_id,
    countIf(DeploymentId = {b:String}) AS count,
    count() OVER () AS total
FROM {table}
WHERE {where}
GROUP BY type, message
HAVING countIf(DeploymentId = {a:String}) = 0
ORDER BY count DESC, type, message
LIMIT {limit:UInt64}
{aggregation_settings}
"""
# All of A's range counts and not its window alone: an error that A had later is not new in B.
_IN_WINDOW = Sql("(DeploymentId = {a:String} OR Timestamp < fromUnixTimestamp64Nano({b_end_ns:Int64}))")


class NewErrorRow(TypedDict):
    """Errors with the same type and message. Service, operation and trace are those of the first error."""

    type: str
    message: str
    service: str
    name: str
    trace_id: str
    count: int


class NewErrors(msgspec.Struct):
    """The most frequent new errors, and the number of all."""

    rows: list[NewErrorRow]
    total: int


def new_errors(store: Store, selected: Selection) -> NewErrors:
    """Return the errors of `b` in its window that `a` does not have in the time range."""
    where = selected.where(IN_BOTH, _IN_WINDOW, IS_ERROR)
    statement = compose(_NEW_ERRORS, type=error_type(store), message=ERROR_MESSAGE, where=where)
    parameters = {**selected.parameters, **TEMPLATE_PARAMETERS, "limit": NEW_ERRORS_MAX}
    lines = b"".join(store.lines(statement, parameters)).splitlines()
    found = [msgspec.json.decode(line) for line in lines]
    total = found[0].pop("total") if found else 0
    return NewErrors([msgspec.convert(row, NewErrorRow) for row in found], total)
