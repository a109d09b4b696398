"""Deployments that sent spans: a list of them, and the check that a named deployment is stored."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final, NamedTuple, TypedDict

from receiver.console.queries.aggregates.proven_hours import ProvenHours
from receiver.console.queries.aggregates.totalled import DEPLOYMENTS_SEEN, source, totalled_lines
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup.ranges import Values
from receiver.console.queries.selection import Selection, selection
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Parameters, Store
from receiver.errors import NoSuchDeployment

NAMED_MAX = 5
"""Deployments that an error names."""
CANDIDATES_MAX = 10_000
"""Deployments, the newest first, among which a similar id is searched."""

_DEPLOYMENTS = """
SELECT
    ProjectId AS project,
    DeploymentId AS deployment,
    concat(replaceOne(toString(min(First)), ' ', 'T'), 'Z') AS first_seen,
    concat(replaceOne(toString(max(Last)), ' ', 'T'), 'Z') AS last_seen,
    sum(Spans) AS spans,
    sum(Errors) AS errors
FROM {source}
GROUP BY project, deployment
ORDER BY min(First) DESC, project, deployment
LIMIT {limit:UInt64}
{settings}
"""
IN_BOTH: Final = Sql("DeploymentId IN ({a:String}, {b:String})")
"""Condition for the spans of the compared deployments."""
_SPANS_SEEN = """
SELECT
    DeploymentId,
    toUnixTimestamp64Nano(min(Timestamp)),
    toUnixTimestamp64Nano(max(Timestamp))
FROM {table}
WHERE {where}
GROUP BY DeploymentId
{settings}
"""
_CANDIDATES = compose("""
SELECT DeploymentId
FROM {table}
WHERE {in_range}
  AND DeploymentId != ''
GROUP BY DeploymentId
ORDER BY min(Timestamp) DESC, DeploymentId
LIMIT {limit:UInt64}
{settings}
""")


class DeploymentRow(TypedDict):
    """A deployment in a project."""

    project: str
    deployment: str
    first_seen: str
    last_seen: str
    spans: int
    errors: int


class Seen(NamedTuple):
    """First and last start of the spans of a deployment."""

    first_ns: int
    last_ns: int


def deployments(store: Store, asked: Asked[None], now_s: float) -> LimitedLines:
    """Return the deployments, the newest first, one JSON object a line."""
    selected = selection(store, asked, now_s)

    def statement(hours: ProvenHours) -> tuple[Sql, Values]:
        values: Values = {**selected.parameters, "limit": asked.limit + 1}
        found = source(DEPLOYMENTS_SEEN, hours, selected.condition, values)
        return compose(_DEPLOYMENTS, source=found), values

    lines = totalled_lines(store, asked, now_s, [DEPLOYMENTS_SEEN], statement)
    return LimitedLines(within_time(lines), asked.limit)


def seen_of(store: Store, a: str, b: str, selected: Selection) -> tuple[Seen, Seen]:
    """Return when both deployments were seen. Raises `NoSuchDeployment` for a deployment without a span."""
    statement = compose(_SPANS_SEEN, where=selected.where(IN_BOTH))
    rows = store.rows(statement, {**selected.parameters, "a": a, "b": b})
    found = {str(deployment): Seen(first_ns, last_ns) for deployment, first_ns, last_ns in rows}
    for field, wanted in (("a", a), ("b", b)):
        if wanted not in found:
            raise _unknown(store, field, wanted, selected.parameters)
    return found[a], found[b]


def _unknown(store: Store, field: str, wanted: str, parameters: Parameters) -> NoSuchDeployment:
    """Return the error about a deployment without a span. It names stored deployments, never the input."""
    names = [str(name) for (name,) in store.rows(_CANDIDATES, {**parameters, "limit": CANDIDATES_MAX})]
    # Without the filter the deployment has spans, so the id is right, and only the filter excludes them.
    if wanted in names:
        return NoSuchDeployment(
            f"{field}: no span of this deployment in the time range matches the filter", field=field
        )
    if not names:
        return NoSuchDeployment(
            f"{field}: no span in the time range has a deployment; an earlier since reads further back",
            field=field,
        )
    close = get_close_matches(wanted, names, n=1)
    meant = f"did you mean '{close[0]}'? " if close else ""
    newest = ", ".join(names[:NAMED_MAX]) + (" and others" if len(names) > NAMED_MAX else "")
    return NoSuchDeployment(
        f"{field}: no span in the time range is of this deployment; {meant}the newest are {newest}; "
        "an earlier since reads further back",
        field=field,
    )
