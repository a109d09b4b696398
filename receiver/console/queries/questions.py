"""The table of questions: name → question. A new question is an entry here and a module that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from receiver.console.queries import arrivals, attributes, deployment_events, limits, names
from receiver.console.queries.aggregates import chart, latency, red, requests
from receiver.console.queries.aggregates.service_map import EdgeRow, service_map
from receiver.console.queries.comparison import compare
from receiver.console.queries.comparison.deployments import DeploymentRow, deployments
from receiver.console.queries.comparison.shifts import (
    SHIFTS_DEFAULT,
    SHIFTS_MAX,
    ShiftRow,
    parse_against,
    shifts,
)
from receiver.console.queries.error_groups import ErrorRow, error_groups
from receiver.console.queries.parameter_types import LENGTH, whole_number
from receiver.console.queries.question import Asked, Parameter, Question
from receiver.console.queries.search import SearchQuery, TraceSummary, parse_search, search
from receiver.console.queries.sentences import SENTENCES
from receiver.console.queries.spans import parse_own, spans, spans_arrow
from receiver.console.queries.traces.trace_columns import COLUMNS_MAX
from receiver.engine.store import Store


def _search(store: Store, asked: Asked[SearchQuery], now_s: float) -> limits.LimitedLines:
    return search(store, asked.own._replace(limit=asked.limit, cursor=asked.cursor), now_s=now_s)


_QUESTIONS: Final[Mapping[str, Question[Any]]] = {
    "search": Question(
        row=TraceSummary,
        ask=_search,
        parse_own=parse_search,
        noun="trace",
        parameters=(
            Parameter("q", "a query in TraceQL, in place of a filter"),
            Parameter(
                "sort",
                "order of all matching traces: started, duration, spans, errors, root, a field or an "
                "attribute, with - in front for the largest first; by default the newest first",
            ),
            Parameter(
                "columns",
                f"fields and attributes that each line has in addition, at most {COLUMNS_MAX}, separated by "
                "commas: of the root span, or else of the earliest span that has it",
                is_list=True,
            ),
        ),
        filters_traces=True,
        has_filter=True,
        has_cursor=True,
        limit_default=limits.TRACES_DEFAULT,
        limit_max=limits.TRACES_MAX,
    ),
    "spans": Question(
        row=dict,
        ask=spans,
        parse_own=parse_own,
        ask_arrow=spans_arrow,
        noun="span",
        has_cursor=True,
        parameters=(
            Parameter("project", "the id of a project; an empty id selects spans without a project"),
            Parameter("service", "the name of a service; an empty name selects spans without a service"),
        ),
        has_filter=True,
        limit_default=limits.SPANS_DEFAULT,
        limit_max=limits.SPANS_MAX,
    ),
    "services": Question(
        row=names.ServiceRow,
        ask=names.services,
        noun="service",
        is_short=True,
        examples=("trace-drain services --since 24h", "trace-drain services --format json | jq -r .service"),
    ),
    "operations": Question(
        row=names.OperationRow,
        ask=names.operations,
        parse_own=lambda query, _: query["service"],
        noun="operation",
        is_short=True,
        parameters=(Parameter("service", "the name of a service", is_required=True, is_positional=True),),
        examples=(
            "trace-drain operations web --since 24h",
            "trace-drain operations web --format json | jq 'select(.p95_ms > 250)'",
        ),
    ),
    "attributes": Question(
        row=attributes.AttributeRow,
        ask=attributes.attributes,
        parse_own=lambda query, _: query.get("key"),
        parameters=(Parameter("key", "the key of an attribute", is_positional=True),),
        has_filter=True,
        examples=(
            "trace-drain attributes                        # the keys",
            "trace-drain attributes http.route --since 24h # the values of a key",
            "trace-drain attributes --filter project=prj_1 # the keys of a project",
        ),
    ),
    "tail": Question(
        row=arrivals.ArrivalRow,
        ask=arrivals.arrivals,
        parse_own=arrivals.parse_after,
        noun="span",
        parameters=(
            Parameter(
                "after",
                "a time in milliseconds since 1970: only spans received since then",
                schema=whole_number(0, arrivals.AFTER_MS_MAX, 0),
            ),
        ),
        has_filter=True,
        limit_default=limits.ARRIVALS_MAX,
        limit_max=limits.ARRIVALS_MAX,
    ),
    "service-map": Question(
        row=EdgeRow,
        ask=service_map,
        noun="edge",
        has_filter=True,
        examples=(
            "trace-drain service-map --since 24h",
            "trace-drain service-map --filter project=prj_1 --format json | jq 'select(.errors > 0)'",
        ),
    ),
    "red": Question(
        row=red.RedRow,
        ask=red.red,
        parameters=red.PARAMETERS,
        parse_own=red.parse_own,
        has_filter=True,
        hint_if_empty=requests.HINT,
        examples=(
            "trace-drain red                                  # requests by service",
            "trace-drain red --by http.route --filter service=web --since 24h",
            "trace-drain red --by deployment --every 5m       # over time",
            "trace-drain red --by db.system.name --spans all  # calls to databases",
        ),
    ),
    "chart": Question(
        row=chart.ChartRow,
        ask=chart.chart,
        parameters=chart.PARAMETERS,
        parse_own=chart.parse_own,
        has_filter=True,
        limit_default=limits.CHART_DEFAULT,
        hint_if_empty=requests.HINT,
        examples=(
            "trace-drain chart --measure p95 --by http.route,deployment --since 7d",
            "trace-drain chart --measure error_rate --by deployment --filter service=checkout",
            "trace-drain chart --measure avg:span.retries --every 5m --spans all --format json",
        ),
    ),
    "latency": Question(
        row=latency.LatencyRow,
        ask=latency.latency,
        parameters=latency.PARAMETERS,
        parse_own=latency.parse_own,
        has_filter=True,
        limit_default=limits.LATENCY_DEFAULT,
        hint_if_empty=requests.HINT,
        examples=(
            "trace-drain latency --filter 'service=web http.route=/cart' --since 24h",
            "trace-drain latency --every 1m --format csv > latency.csv",
        ),
    ),
    "errors": Question(
        row=ErrorRow,
        ask=error_groups,
        noun="error",
        has_filter=True,
        examples=(
            "trace-drain errors --since 24h",
            "trace-drain errors --filter 'deployment=dpl_7' --format json | jq -r .example_trace_id",
        ),
    ),
    "deployments": Question(
        row=DeploymentRow,
        ask=deployments,
        noun="deployment",
        has_filter=True,
        examples=(
            "trace-drain deployments --since 24h",
            "trace-drain deployments --filter 'status=error' # with numbers of failed spans only",
        ),
    ),
    "deployment-events": Question(
        row=deployment_events.DeploymentEventRow,
        ask=deployment_events.deployment_events,
        parse_own=deployment_events.parse_own,
        noun="event",
        parameters=deployment_events.PARAMETERS,
        is_short=True,
        limit_default=deployment_events.EVENTS_DEFAULT,
        limit_max=deployment_events.EVENTS_MAX,
        hint_if_empty="events are fetched when a page of the deployment is opened, or while it is live",
        examples=(
            "trace-drain deployment-events dpl_7 --since 24h",
            "trace-drain deployment-events dpl_7 --kind error --format json | jq -r .text",
        ),
    ),
    "compare": Question(
        row=compare.DeploymentComparison,
        ask=compare.compare,
        parse_own=compare.parse_own,
        noun="comparison",
        parameters=(
            Parameter("a", "the id of the deployment to compare with", is_required=True, is_positional=True),
            Parameter("b", "the id of the deployment to judge", is_required=True, is_positional=True),
            Parameter(
                "first",
                "the time compared from the first span of each deployment on, such as 30m",
                schema=LENGTH,
            ),
        ),
        has_filter=True,
        is_single=True,
        limit_default=compare.OPERATIONS_DEFAULT,
        limit_max=compare.OPERATIONS_MAX,
        examples=(
            "trace-drain compare dpl_1 dpl_2 --since 24h",
            "trace-drain compare dpl_1 dpl_2 --first 30m --filter 'service=web kind=server'",
            "trace-drain compare dpl_1 dpl_2 --format json | jq -r .verdict",
        ),
    ),
    "shifts": Question(
        row=ShiftRow,
        ask=shifts,
        parse_own=parse_against,
        noun="value",
        parameters=(
            Parameter("filter", "a filter, as for search", is_required=True, is_positional=True),
            Parameter("against", "a filter for the spans to compare with; all other spans if omitted"),
        ),
        limit_default=SHIFTS_DEFAULT,
        limit_max=SHIFTS_MAX,
        examples=(
            "trace-drain shifts status=error --since 24h",
            "trace-drain shifts 'service=web duration>1s' --against service=web",
        ),
    ),
}
QUESTIONS: Final = {name: replace(each, summary=SENTENCES[name]) for name, each in _QUESTIONS.items()}
"""Name → question: the path `/api/v1/NAME` and the command `trace-drain NAME`."""
