"""The table of tools: name → tool. A new tool is an entry here and the function that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from receiver.console.api.source import Answer, Row
from receiver.console.queries.parameter_types import TRACE_ID, whole_number
from receiver.console.queries.question import Parameter
from receiver.console.queries.sentences import SENTENCES
from receiver.console.queries.traces.trace_model import Trace, trace_of
from receiver.console.queries.traces.traces import normalized_trace_id
from receiver.console.tools.mcp import trace_summary
from receiver.console.tools.mcp.result import CHARACTERS_PER_TOKEN, Found
from receiver.console.tools.mcp.tool import Arguments, Context, Tool, parameters_of
from receiver.errors import MalformedBody

TOKENS_DEFAULT: Final = 4_000
TOKENS_MIN: Final = 1_000
TOKENS_MAX: Final = 32_000
"""Limits of the budget of `get_trace`."""
DETAILED_ERRORS_MAX: Final = 3
"""Maximum number of failed spans of a trace that are shown with their attributes and events."""
HIDDEN: Final = "spans of projects that the user may not see are left out"
_TRACES: Final = 20
_ERRORS: Final = 20
_SERVICES: Final = 100
_VALUES: Final = 50
_OPERATIONS: Final = 10
_LISTS: Final = {
    "operations": "operation",
    "new_errors": "new error",
    "services": "service",
    "shifts": "attribute shift",
    "vanished": "vanished operation",
    "appeared": "appeared operation",
}
"""Lists of a comparison, the most important first, with the names of their parts."""


async def _search_traces(context: Context, arguments: Arguments) -> Found:
    answer = await context.source.ask("search", arguments)
    times = _times(arguments)
    rows = [{**row, "url": _trace_url(context, row["trace_id"])} for row in answer.rows]
    # The page does not accept TraceQL.
    is_filter = "q" not in arguments
    page = context.link("/search", filter=arguments.get("filter", ""), **times)
    return Found({**({"page": page} if is_filter else {}), **_facts(answer)}, "traces", rows)


async def _get_trace(context: Context, arguments: Arguments) -> Found:
    trace_id = normalized_trace_id(arguments["trace_id"])
    trace = await context.source.outline(trace_id, trace_of)
    if trace is None:
        raise MalformedBody(
            "no span of this trace is stored; it has expired or has not arrived", field="trace_id"
        )
    return await trace_found(context, trace_id, trace, int(arguments["tokens"]))


async def trace_found(
    context: Context, trace_id: str, trace: Trace, tokens: int, clean: Callable[[str], str] = str
) -> Found:
    """Return the summary of a trace within a budget of tokens. `clean`: see `trace_summary.head`."""
    # Takes seconds for the largest traces; other requests continue meanwhile.
    head, rows = await asyncio.to_thread(
        lambda: (trace_summary.head(trace, clean), trace_summary.rows(trace))
    )
    characters_max = tokens * CHARACTERS_PER_TOKEN
    # Half of the budget for all details together.
    for_details = characters_max // (2 * DETAILED_ERRORS_MAX)
    first, rest = rows[:DETAILED_ERRORS_MAX], rows[DETAILED_ERRORS_MAX:]
    rows = [*[await _detailed(context, trace_id, row, for_details) for row in first], *rest]
    hidden = {"hidden": HIDDEN} if await context.source.hides_spans(trace_id) else {}
    head = {"trace_id": trace_id, "page": _trace_url(context, trace_id), **hidden, **head}
    return Found(head, "spans", rows, characters_max)


async def _compare_deployments(context: Context, arguments: Arguments) -> Found:
    found = (await context.source.ask("compare", arguments)).rows[0]
    rows = [{"part": part, **row} for name, part in _LISTS.items() for row in found[name]]
    page = context.link("/compare", a=arguments["a"], b=arguments["b"], **_times(arguments))
    head = {name: value for name, value in found.items() if name not in _LISTS}
    return Found({"page": page, **head}, "differences", rows)


async def _errors(context: Context, arguments: Arguments) -> Found:
    answer = await context.source.ask("errors", arguments)
    rows = [{**row, "example_url": _trace_url(context, row["example_trace_id"])} for row in answer.rows]
    page = context.link("/errors", filter=arguments.get("filter", ""), **_times(arguments))
    return Found({"page": page, **_facts(answer)}, "errors", rows)


async def _services(context: Context, arguments: Arguments) -> Found:
    answer = await context.source.ask("services", arguments)
    page = context.link("/services", **_times(arguments))
    return Found({"page": page, **_facts(answer)}, "services", answer.rows)


async def _attribute_values(context: Context, arguments: Arguments) -> Found:
    answer = await context.source.ask("attributes", arguments)
    return Found(_facts(answer), "attributes", answer.rows)


async def _detailed(context: Context, trace_id: str, row: Row, characters_max: int) -> Row:
    """Return the row of a failed span with its attributes and events."""
    if row["part"] != "error":
        return row
    stored = await context.source.span(trace_id, row["span_id"])
    # The span may expire between both queries.
    if stored is None:
        return row
    return {**row, **trace_summary.details(stored, characters_max)}


def _trace_url(context: Context, trace_id: str) -> str:
    return context.link(f"/trace/{trace_id}")


def _times(arguments: Arguments) -> dict[str, str]:
    return {name: arguments[name] for name in ("since", "until") if name in arguments}


def _facts(answer: Answer) -> dict[str, Any]:
    """Return facts about the answer: whether more rows match, and similar keys."""
    keys = {"similar_keys": list(answer.close_keys)} if answer.close_keys else {}
    return {"more_match": answer.is_cut, **keys}


_ALL: Final = (
    Tool(
        "search_traces",
        "Search traces",
        "Find traces by a filter, those with the newest matching spans first. A filter is words to search "
        "for, such as a part of an error message, terms such as service=web status=error duration>500ms "
        "http.route=/cart, or JSON. `q` is a query in TraceQL.",
        parameters_of("search", _TRACES, without=("cursor",)),
        _search_traces,
    ),
    Tool(
        "get_trace",
        "Summarize a trace",
        "Summarize a trace within a budget of tokens: failed spans first, those where a failure began before "
        "their callers, then the spans on the critical path, then the others. `left_out` counts the spans "
        "that did not fit.",
        (
            Parameter("trace_id", "the id of a trace: 32 hex digits", is_required=True, schema=TRACE_ID),
            Parameter(
                "tokens",
                "maximum length of the result, in tokens",
                schema=whole_number(TOKENS_MIN, TOKENS_MAX, TOKENS_DEFAULT),
            ),
        ),
        _get_trace,
    ),
    Tool(
        "compare_deployments",
        "Compare deployments",
        "Compare deployment B with deployment A: a verdict with confidence, changes of the whole, of "
        "services and of operations, new errors, and attribute values that became more frequent.",
        parameters_of("compare", _OPERATIONS),
        _compare_deployments,
    ),
    Tool(
        "errors",
        "List errors",
        "List the errors by service, type and message, the most frequent first, each with an example trace.",
        parameters_of("errors", _ERRORS),
        _errors,
    ),
    Tool("services", "List services", SENTENCES["services"], parameters_of("services", _SERVICES), _services),
    Tool(
        "attribute_values",
        "List attribute values",
        "List the values of an attribute of spans and resources with their numbers of spans; without a key, "
        "list the keys.",
        parameters_of("attributes", _VALUES),
        _attribute_values,
    ),
)
TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in _ALL}
