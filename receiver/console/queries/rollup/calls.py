"""Derivation of calls between services, by the hour of the called span.

    otel_calls          calls, errors and durations by caller and called service

A call and its caller may start in different hours and be stored by different INSERTs, so the calls of an
hour depend on the spans of three hours. They are derived after the slots of these hours, and have versions of
their own.

Invariant: the total row of an hour has the versions of the three slots, which were read before any span. The
calls are read only while the slots have these versions and no late spans, so no span was added since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Final

from receiver.console.queries.rollup.day import NO_CALLS, CallsOfHour, Day
from receiver.console.queries.rollup.proof import CALLS_OF_HOURS, Checked
from receiver.console.queries.rollup.ranges import runs
from receiver.console.queries.rollup.replicas import agreed_counts, has_divided_traces
from receiver.console.queries.rollup.slots import is_of_other, next_version, read_slots
from receiver.console.queries.rollup.tables import (
    CALLS,
    HOUR,
    HOUR_NS,
    HOUR_S,
    HOURS_OF_DAY,
    MEASURES,
    MEMORY_BYTES_MAX,
    rollup_compose,
)
from receiver.console.queries.rollup.totals import write_total
from receiver.engine.sql_text import Sql, compose, joined, names, started_between
from receiver.engine.store import Parameters, Store
from receiver.time_range import NS_MAX

CALLER_AGE_S_MAX = 3_600
"""How long before a range a caller may have started: calls of older callers are not found."""
CLOCK_SKEW_S_MAX = 60
"""How long after a range a caller may have started, by its own clock."""
NEWEST_HOURS_MIN = 3
"""Number of new hours that are derived at once. Deriving one also reads the callers of the hour before."""
DIVIDED: Final = " divided"
"""End of the key of an hour with traces that several shards have: their calls are read from the spans."""
LATEST_MS: Final = 1 << 62
"""Later than any time of receipt: calls are derived of all spans."""
CALL_KEYS: Final = ("ProjectId", "DeploymentId", "ServiceName", "SpanKind")
"""Columns of the rows by which a filter can select."""
CALL_MEASURES: Final = ("Errors", "DurationMax", "Buckets", "BucketSpans", "Spans")
IS_CALL: Final = Sql("SpanKind IN ('Server', 'Consumer') AND ParentSpanId != ''")
BY_CALL: Final = Sql("client, server, id, caller_id, Duration, is_error")
"""What tells the calls of an hour apart: a span that two senders sent is one call."""
_CALLS = """
SELECT
    caller.service AS client, call.service AS server, call.hour AS hour,
    call.id AS id, call.caller_id AS caller_id, Duration, is_error{columns}
FROM
(
    SELECT
        cityHash64(TraceId, SpanId) AS id,
        ServiceName AS service,
        intDiv(toUnixTimestamp64Nano(Timestamp) - {skew_ns}, {hour_ns}) AS first_hour,
        intDiv(toUnixTimestamp64Nano(Timestamp) + {age_ns}, {hour_ns}) AS last_hour{caller_columns}
    FROM {table}
    WHERE {callers}
) AS caller
-- the engine keeps the second table in memory: calls are a small part of the spans
INNER JOIN
(
    SELECT
        cityHash64(TraceId, SpanId) AS id,
        cityHash64(TraceId, ParentSpanId) AS caller_id,
        ServiceName AS service,
        {hour} AS hour,
        Duration,
        StatusCode = 'Error' AS is_error{call_columns}
    FROM {table}
    WHERE {calls}
) AS call
ON caller.id = call.caller_id
WHERE client != server{condition}
"""
_IN_HOURS = Sql(" AND call.hour BETWEEN caller.first_hour AND caller.last_hour")
_NONE: Final = Sql("")


def calls_of_spans(  # noqa: PLR0913 - conditions and columns of two tables
    callers: Sql,
    calls: Sql,
    *,
    by_hour: bool = True,
    columns: Sql = _NONE,
    caller_columns: Sql = _NONE,
    call_columns: Sql = _NONE,
) -> Sql:
    """Return the calls with their callers: a row for each time that a call and its caller are stored.

    `by_hour`: only callers that `callers_of` finds for the hour of the call.
    """
    return compose(
        _CALLS,
        hour=HOUR,
        hour_ns=HOUR_NS,
        skew_ns=CLOCK_SKEW_S_MAX * 10**9,
        age_ns=CALLER_AGE_S_MAX * 10**9,
        callers=callers,
        calls=calls,
        condition=_IN_HOURS if by_hour else _NONE,
        columns=columns,
        caller_columns=caller_columns,
        call_columns=call_columns,
    )


# Copies of a call may differ in what a filter selects, and those of its caller in the project, which limits
# what a user sees. No sum counts such a call once for every filter: its hour is read from the spans.
_INSERT = rollup_compose(
    """
INSERT INTO {calls} (Hour, ClientName, ClientProjectId, {keys}, {measures}, Source, Version)
SELECT
    toDateTime(hour * {hour_s}, 'UTC'), client, client_project, project, deployment, server, kind,
    countIf(is_error), {of_calls}, count(), if(differs, 'copies', '{table}'), {version:UInt64}
FROM
(
    SELECT
        hour, {by_call},
        any(caller_project) AS client_project, any(call_project) AS project,
        any(call_deployment) AS deployment, any(call_kind) AS kind,
        min(copy) != max(copy) AS differs
    FROM
    (
        SELECT *, cityHash64(caller_project, call_project, call_deployment, call_kind) AS copy
        FROM ({joined})
    )
    GROUP BY hour, {by_call}
)
GROUP BY hour, client, client_project, project, deployment, server, kind, differs
{settings}, join_algorithm = 'grace_hash', max_bytes_in_join = {join_bytes_max}
""",
    calls=CALLS,
    keys=names(CALL_KEYS),
    measures=names(CALL_MEASURES),
    of_calls=joined(", ", (MEASURES[name].of_spans for name in CALL_MEASURES[1:-1])),
    by_call=BY_CALL,
    joined=calls_of_spans(
        started_between("callers_from_ns", "callers_to_ns"),
        compose("{in_range} AND {is_call}", is_call=IS_CALL),
        columns=Sql(", call_project, call_deployment, call_kind, caller_project"),
        caller_columns=Sql(", ProjectId AS caller_project"),
        call_columns=Sql(
            ", ProjectId AS call_project, DeploymentId AS call_deployment, SpanKind AS call_kind"
        ),
    ),
    join_bytes_max=MEMORY_BYTES_MAX // 4,
)
_DEFINITION: Final = blake2b(_INSERT.encode(), digest_size=8).hexdigest()
_KEY: Final = rollup_compose(
    "{keys:Array(String)}[indexOf({hours:Array(UInt32)}, intDiv(toUnixTimestamp(hour), {hour_s}))]"
)
CHECKED: Final = Checked(totals={CALLS: _DEFINITION})


def callers_of(from_ns: int, to_ns: int) -> tuple[int, int]:
    """Return when the callers of the calls of a range started."""
    return max(0, from_ns - CALLER_AGE_S_MAX * 10**9), min(to_ns + CLOCK_SKEW_S_MAX * 10**9, NS_MAX)


def current_calls(days: Collection[Day]) -> Iterator[tuple[int, int]]:
    """Yield the hours whose calls equal the spans, and the version of their rows. `days`: proven days."""
    versions = {
        hour: slot.version for day in days for hour, slot in day.slots.items() if hour not in day.late
    }
    for day in days:
        for hour, calls in day.calls.items():
            if calls.key and calls.key == _key_of(versions, hour) and not calls.copies:
                yield hour, calls.version


def due_calls(store: Store, number: int, received_to_ms: int) -> dict[int, str]:
    """Return the hours of a day whose calls are due, and the keys of their total rows.

    Also the first hour of the next day: it depends on this day, which is derived after the next one. Not the
    hours that another receiver derived just now: it also derives their calls.
    """
    hours = range(number * HOURS_OF_DAY, (number + 1) * HOURS_OF_DAY + 1)
    slots = read_slots(store, hours.start - 1, hours.stop + 2)
    versions = {
        hour: slot.version for hour, slot in slots.items() if not is_of_other(store, slot, received_to_ms)
    }
    derived = defaultdict[int, dict[int, CallsOfHour]](dict)
    bounds: Parameters = {"from_s": hours.start * HOUR_S, "to_s": hours.stop * HOUR_S}
    for node, _, key, hour, copies, version in store.layout.rows_of_nodes(store, CALLS_OF_HOURS, bounds):
        found = CallsOfHour(version, key, copies)
        derived[node][hour] = max(derived[node].get(hour, NO_CALLS), found)
    keys = {hour: _key_of(versions, hour) for hour in range(hours.start, hours.stop + 1)}
    due = [
        hour
        for hour in hours
        if keys[hour]
        and any(
            derived[node].get(hour, NO_CALLS).key.removesuffix(DIVIDED) != keys[hour]
            for node in slots[hour].spans_of_nodes
        )
    ]
    return {
        hour: keys[hour]
        for first, end in runs(due)
        # Without a key of the next hour, these hours are the newest.
        if end - first >= NEWEST_HOURS_MIN or keys[end]
        for hour in range(first, end)
    }


def derive_calls(store: Store, first: int, end: int, keys: Mapping[int, str]) -> None:
    """Derive the calls of hours. `keys`: see `due_calls`."""
    from_ns, to_ns = first * HOUR_NS, end * HOUR_NS
    callers_from_ns, callers_to_ns = callers_of(from_ns, to_ns)
    hours = list(range(first, end))
    parameters: Parameters = {
        "hours": hours,
        "keys": [keys[hour] for hour in hours],
        "from_ns": from_ns,
        "to_ns": to_ns,
        "callers_from_ns": callers_from_ns,
        "callers_to_ns": callers_to_ns,
        "from_s": first * HOUR_S,
        "to_s": end * HOUR_S,
        "version": next_version(store, first, end),
    }
    hours_read = range(first - 1, end + 1)
    before = agreed_counts(store, hours_read, LATEST_MS)
    if before is None:
        return
    store.rows(store.layout.on_shards(_INSERT), parameters)
    if agreed_counts(store, hours_read, LATEST_MS) != before:
        return
    callers: Parameters = {"from_ns": callers_from_ns, "to_ns": callers_to_ns}
    if has_divided_traces(store, callers):
        parameters = {**parameters, "keys": [f"{keys[hour]}{DIVIDED}" for hour in hours]}
    write_total(store, CALLS, parameters, _KEY)


def _key_of(versions: Mapping[int, int], hour: int) -> str:
    """Return the key of the total row of an hour, of the versions of slots; empty if a slot is missing."""
    around = range(hour - 1, hour + 2)
    if not versions.keys() >= {*around}:
        return ""
    return " ".join((_DEFINITION, *(str(versions[each]) for each in around)))
