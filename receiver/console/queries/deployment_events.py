"""Stored events of a deployment: its build log, its changes of state and its requests.

Invariant: an event counts once, however often it was fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypedDict

from receiver.console.queries.limits import LimitedLines, limited_lines
from receiver.console.queries.parameter_types import Schema
from receiver.console.queries.question import Asked, Parameter
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange

EVENTS_DEFAULT = 1_000
EVENTS_MAX = 100_000
TEXT_CHARS_MAX = 4_096
"""Length at which each text of an event is cut; the parameter `event` returns the whole event."""
KINDS: Final = ("build", "state", "request", "error")
"""Kinds of events. `error` selects events of the other kinds: failed requests, and errors of a build."""
_KIND_TYPE: Final[Schema] = {"type": "string", "enum": list(KINDS)}
PARAMETERS: Final = (
    Parameter("deployment", "the id of a deployment", is_required=True, is_positional=True),
    Parameter("kind", f"one of {', '.join(KINDS)}: only events of this kind", schema=_KIND_TYPE),
    Parameter("request", "the id of a request: only events with this requestId or platformId"),
    Parameter("event", "the id of an event: only this event, with all that the platform sent"),
)

# The platform may send other types, and types of its build log with or without the id of a build.
_KIND: Final = Sql("""
multiIf(
    RequestId != '' OR PlatformId != '' OR StatusCode != 0, 'request',
    Type = 'deployment-state', 'state',
    ReadyState != '' AND Type NOT IN ('stdout', 'stderr', 'command', 'exit', 'delimiter'), 'state',
    'build'
)
""")
# Tools write warnings and progress to standard error, too.
_IS_ERROR: Final = Sql(r"""
(
    StatusCode >= 500 OR ReadyState = 'ERROR' OR Type IN ('error', 'fatal')
    OR Type = 'stderr' AND (RequestId != '' OR match(Text, '(?i)\\b(error|fatal|failed|exception|panic)\\b'))
)
""")


def _cut(text: Sql) -> Sql:
    template = "if(lengthUTF8({text}) > {max}, concat(substringUTF8({text}, 1, {max}), '…'), {text})"
    return compose(template, text=text, max=TEXT_CHARS_MAX)


_EVENTS: Final = compose(
    """
SELECT
    EventId AS id,
    concat(replaceOne(toString(Created), ' ', 'T'), 'Z') AS time,
    ProjectId AS project,
    {kind} AS kind,
    {type} AS type,
    toBool({is_error}) AS is_error,
    {text} AS text,
    {ready_state} AS ready_state,
    {step_name} AS step_name,
    {step} AS step,
    StatusCode AS status_code,
    {request_id} AS request_id,
    {platform_id} AS platform_id,
    {method} AS method,
    {host} AS host,
    {path} AS path,
    if({event:String} = '', '', Event) AS event
FROM {deployment_events}
WHERE DeploymentId = {deployment:String}
  AND Created >= fromUnixTimestamp64Nano({from_ns:Int64})
  AND Created < fromUnixTimestamp64Nano({to_ns:Int64})
  AND ({event:String} = '' OR EventId = {event:String})
  AND ({request:String} = '' OR RequestId = {request:String} OR PlatformId = {request:String})
  AND ({kind:String} = '' OR {kind:String} = 'error' AND is_error OR {kind:String} = kind)
-- an event whose project became known after its first fetch is stored without and with it
ORDER BY Created, length(Serial), Serial, EventId, ProjectId = '', FetchedAt
LIMIT 1 BY EventId
LIMIT {limit:UInt64}
{short_settings}
""",
    kind=_KIND,
    type=_cut(Sql("toString(Type)")),
    is_error=_IS_ERROR,
    text=_cut(Sql("Text")),
    ready_state=_cut(Sql("toString(ReadyState)")),
    step_name=_cut(Sql("StepName")),
    step=_cut(Sql("Step")),
    request_id=_cut(Sql("RequestId")),
    platform_id=_cut(Sql("PlatformId")),
    method=_cut(Sql("RequestMethod")),
    host=_cut(Sql("RequestHost")),
    path=_cut(Sql("RequestPath")),
)


class DeploymentEventRow(TypedDict):
    """An event of a deployment."""

    id: str
    time: str
    project: str
    kind: str
    type: str
    is_error: bool
    text: str
    ready_state: str
    step_name: str
    step: str
    status_code: int
    request_id: str
    platform_id: str
    method: str
    host: str
    path: str
    event: str
    """The whole event as JSON; empty unless the query selects it by its id."""


class EventFilter(NamedTuple):
    """Selection of events; an empty text selects all events of the deployment."""

    deployment: str
    kind: str = ""
    request: str = ""
    event: str = ""


def parse_own(query: Mapping[str, str], _: TimeRange) -> EventFilter:
    """Parse the parameters of this question."""
    if query.get("kind", KINDS[0]) not in KINDS:
        raise MalformedBody(f"kind: expected one of {', '.join(KINDS)}", field="kind")
    return EventFilter(**{name: query[name] for name in EventFilter._fields if name in query})


def deployment_events(store: Store, asked: Asked[EventFilter], now_s: float) -> LimitedLines:
    """Return the events of a deployment in the order in which they happened, one JSON object a line."""
    parameters = {**asked.own._asdict(), **asked.range.parameters(now_s)}
    return limited_lines(store, _EVENTS, parameters, asked.limit)
