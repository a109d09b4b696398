"""Tools of the model that explains a trace: queries of the console, with narrower limits.

Invariant: tools only read, and only spans of the projects that the trace has and the caller may see, within
`MARGIN_S` of the trace, and events of its deployments. Secrets are replaced in every result.
Never: raises for a call of the model. A model that obeys instructions in a span gets an error as the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import orjson

from receiver.console.api.problems import problem_of
from receiver.console.api.source import Row, Source
from receiver.console.queries.parameter_types import whole_number
from receiver.console.queries.question import Parameter
from receiver.console.queries.traces.trace_model import Trace
from receiver.console.tools.mcp.result import CHARACTERS_PER_TOKEN, Found, fenced, fitted, lines_of
from receiver.console.tools.mcp.tool import Arguments, Context, Tool, parameters_of
from receiver.console.tools.mcp.tools import TOKENS_MIN, TOOLS, trace_found
from receiver.console.tools.mcp.trace_summary import details
from receiver.errors import MalformedBody, ReceiverError
from receiver.platform.client.chat import Function
from receiver.platform.client.chat import Tool as ChatTool
from receiver.platform.explain.redaction import Redactor
from receiver.time_range import instant_text

MARGIN_S: Final = 3_600
"""Time before and after the trace in which the tools read spans."""
EVENTS_BEFORE_S: Final = 7 * 86_400
"""Time before the trace in which a tool reads events of its deployments: they were built before."""
RESULT_TOKENS_MAX: Final = 2_000
"""Maximum length of the result of a tool other than `get_trace`, in tokens."""
SUMMARY_TOKENS: Final = 4_000
"""Maximum length of the summary of the trace in the first request, in tokens."""
SUMMARY_TOKENS_MAX: Final = 8_000
"""Maximum length of a summary that the model may request."""
ARGUMENT_CHARACTERS_MAX: Final = 8_192
"""Maximum length of the arguments of a call."""
_RESULT_CHARACTERS_MAX: Final = RESULT_TOKENS_MAX * CHARACTERS_PER_TOKEN
_SUMMARY_LENGTH: Final = whole_number(TOKENS_MIN, SUMMARY_TOKENS_MAX, SUMMARY_TOKENS)
_ROWS: Final = 20
_EVENTS: Final = 100
_TIMES: Final = ("since", "until")
_LINKS: Final = frozenset(("page", "url", "example_url"))
"""Members of results with links for readers of pages. They are removed: they have the receiver's address."""


class Subject(NamedTuple):
    """The trace that is explained."""

    trace_id: str
    trace: Trace
    source: Source
    """Reads only spans that tools may read."""
    event_source: Source
    """Also reads events whose project is not known, if the caller may see these."""

    @property
    def times(self) -> dict[str, str]:
        """Return the time range of the tools as parameters of a query."""
        return {
            "since": instant_text(self.trace.start_ns / 1e9 - MARGIN_S, zone="Z"),
            "until": instant_text(self.trace.end_ns / 1e9 + MARGIN_S, zone="Z"),
        }


class Toolbox:
    def __init__(self, subject: Subject, redactor: Redactor) -> None:
        self._subject = subject
        self._context = Context(subject.source, "")
        self._redactor = redactor
        self._tools = {tool.name: tool for tool in self._offered()}

    def described(self) -> tuple[ChatTool, ...]:
        return tuple(
            ChatTool(
                function=Function(
                    name=tool.name, description=tool.about, parameters=tool.described()["inputSchema"]
                )
            )
            for tool in self._tools.values()
        )

    async def summary(self) -> str:
        """Return the summary of the trace, as data."""
        return self._text_of(await self._summary(self._context, SUMMARY_TOKENS))

    async def call(self, name: str, arguments: str) -> str:
        """Return the result of a call, or the reason why it failed."""
        tool = self._tools.get(name)
        if tool is None:
            return f"there is no such tool; expected one of {', '.join(self._tools)}"
        try:
            checked = tool.arguments(_parsed(arguments))
            found = await tool.call(self._context, checked)
        except ReceiverError as error:
            return problem_of(error, "filter").message
        return self._text_of(found)

    def _offered(self) -> Iterator[Tool]:
        yield Tool(
            "get_trace",
            "Summarize the trace",
            "Summarize the trace again, at another length: failed spans first, then the critical path, then "
            "the other spans.",
            (Parameter("tokens", "maximum length", schema=_SUMMARY_LENGTH),),
            lambda context, arguments: self._summary(context, int(arguments["tokens"])),
        )
        yield Tool(
            "get_span",
            "Show a span",
            "Show the events and attributes of a span of the trace.",
            (Parameter("span_id", "the id of a span of the trace", is_required=True),),
            self._span,
        )
        for name in ("errors", "compare_deployments"):
            tool = TOOLS[name]
            parameters = tuple(each for each in tool.parameters if each.name not in _TIMES)
            yield tool._replace(parameters=parameters, call=partial(self._within_times, tool.call))
        yield Tool(
            "attribute_shifts",
            "Show attribute shifts",
            "Show which attribute values are more frequent in spans that match a filter than in the others.",
            parameters_of("shifts", _ROWS, without=_TIMES),
            self._shifts,
        )

        yield Tool(
            "deployment_events",
            "List the events of a deployment",
            "List the build log, states and requests of a deployment of the trace, in order. The kind "
            "error has only what failed.",
            parameters_of("deployment-events", _EVENTS, without=(*_TIMES, "request", "event")),
            self._events,
        )

    async def _summary(self, context: Context, tokens: int) -> Found:
        subject = self._subject
        return await trace_found(context, subject.trace_id, subject.trace, tokens, self._redactor.text)

    async def _within_times(
        self, call: Callable[[Context, Arguments], Any], context: Context, arguments: Arguments
    ) -> Found:
        found: Found = await call(context, {**arguments, **self._subject.times})
        return found._replace(characters_max=_RESULT_CHARACTERS_MAX)

    async def _shifts(self, context: Context, arguments: Arguments) -> Found:
        answer = await context.source.ask("shifts", {**arguments, **self._subject.times})
        return Found({"more_match": answer.is_cut}, "values", answer.rows, _RESULT_CHARACTERS_MAX)

    async def _events(self, _context: Context, arguments: Arguments) -> Found:
        trace = self._subject.trace
        if arguments["deployment"] not in {span.row["DeploymentId"] for span in trace.spans}:
            raise MalformedBody(
                "the trace has no span of this deployment; expected that of one of its spans",
                field="deployment",
            )
        since = instant_text(trace.start_ns / 1e9 - EVENTS_BEFORE_S, zone="Z")
        times = {**self._subject.times, "since": since}
        answer = await self._subject.event_source.ask("deployment-events", {**arguments, **times})
        rows = [{name: value for name, value in row.items() if value} for row in answer.rows]
        return Found({"more_match": answer.is_cut}, "events", rows, _RESULT_CHARACTERS_MAX)

    async def _span(self, context: Context, arguments: Arguments) -> Found:
        stored = await context.source.span(self._subject.trace_id, arguments["span_id"])
        if stored is None:
            raise MalformedBody(
                "the trace has no such span; expected the id of one of its spans", field="span_id"
            )
        shown = details(stored, _RESULT_CHARACTERS_MAX)
        rows = [{"part": part, **each} for part in ("events", "attributes") for each in shown[part]]
        head = {"span_id": stored["SpanId"], "name": stored["SpanName"]}
        return Found(head, "parts", rows, _RESULT_CHARACTERS_MAX)

    def _text_of(self, found: Found) -> str:
        content = lines_of(fitted(found._replace(clean=self._clean)))
        nonces = _nonces(content)
        return fenced(content, lambda: next(nonces))

    def _clean(self, row: Row) -> Row:
        cleaned: Row = self._redactor.value({name: row[name] for name in row if name not in _LINKS})
        return cleaned


def _parsed(arguments: str) -> Mapping[str, Any]:
    try:
        parsed = orjson.loads(arguments or "{}") if len(arguments) <= ARGUMENT_CHARACTERS_MAX else None
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise MalformedBody(
            f"arguments: expected a JSON object of at most {ARGUMENT_CHARACTERS_MAX} characters",
            field="arguments",
        )
    return parsed


def _nonces(content: str) -> Iterator[str]:
    """Yield nonces that depend on the content only, so that a preview is equal to what is sent later.

    A sender cannot put such a nonce into the content: it would have to know its own digest.
    """
    for number in count():
        yield hashlib.sha256(f"{number} {content}".encode()).hexdigest()[:16]
