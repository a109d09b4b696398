"""Cases of the benchmark: a question with parameters, its goal, and the exporter's query for the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from benchmarks.query import exporter
from benchmarks.query.values import Values
from benchmarks.store.queries import RARE_KEY
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.traces import traces
from receiver.engine.store import Store

TRACE: Final = "trace"
"""Name of the question for a trace, which has a route of its own."""
LIMIT = 100
TEN_DAYS, DAY = "10 d", "24 h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question with its parameters."""

    name: str
    question: str
    parameters: Mapping[str, str]
    goal_ms: float | None = None
    """CPU time on one core, with warm caches, at 10 million spans."""
    exporter_sql: str | None = None
    """`None` if one statement on the exporter's table does not give this answer."""

    def lines(self, store: Store, now_s: float) -> int:
        """Ask the question as the API does, and return the number of lines of its answer."""
        if self.question == TRACE:
            answer = traces.trace(store, self.parameters["id"])
        else:
            question = QUESTIONS[self.question]
            answer = question.ask(store, question.parse(self.parameters), now_s)
        return sum(piece.count(b"\n") for piece in answer.pieces())


def cases(values: Values) -> list[Case]:
    """Return the cases of all questions about spans."""
    return [*_traces(values), *_names(values), *_numbers(values)]


def _traces(values: Values) -> Iterator[Case]:
    yield Case(
        name="trace by id",
        question=TRACE,
        parameters={"id": values.trace_id},
        goal_ms=40,
        exporter_sql=exporter.trace(),
    )
    project = f"{exporter.PROJECT} = {{project:String}}"
    route = "SpanAttributes['http.route'] = '/search'"
    search = _searches(values)
    yield search(
        f"search, project, service and status, {DAY}",
        f"project={values.project} service={values.service} status=error",
        f"{project} AND ServiceName = {{service:String}} AND StatusCode = 'Error'",
        25,
    )
    yield search(
        f"search, common attribute in a project, {DAY}",
        f"project={values.project} http.route=/search",
        f"{project} AND {route}",
        20,
    )
    yield search(f"search, common promoted attribute, {TEN_DAYS}", "http.route=/search", route, 150)
    yield search(
        f"search, common attribute, {TEN_DAYS}",
        "app.tenant=acme",
        "SpanAttributes['app.tenant'] = 'acme'",
        1_500,
    )
    yield search(
        f"search, rare attribute, {TEN_DAYS}",
        f"{RARE_KEY}={values.rare_value}",
        f"SpanAttributes['{RARE_KEY}'] = {{rare:String}}",
    )
    yield search(f"search, newest traces, {DAY}", "", "1")
    for name, text, condition in (
        ("spans, newest errors", "status=error", "StatusCode = 'Error'"),
        ("spans, newest of a project", f"project={values.project}", project),
    ):
        yield Case(
            name=f"{name}, {TEN_DAYS}",
            question="spans",
            parameters={**_in((values.began, values.ended)), "filter": text},
            exporter_sql=exporter.newest((values.began, values.ended), condition, LIMIT),
        )


def _searches(values: Values) -> Callable[..., Case]:
    def search(name: str, text: str, condition: str, goal_ms: float | None = None) -> Case:
        period = values.day if name.endswith(DAY) else (values.began, values.ended)
        return Case(
            name=name,
            question="search",
            parameters={**_in(period), "filter": text, "limit": str(LIMIT)},
            goal_ms=goal_ms,
            exporter_sql=exporter.search(period, condition, LIMIT),
        )

    return search


def _names(values: Values) -> Iterator[Case]:
    period = values.began, values.ended
    yield _timed("services", {}, period, 20, exporter.services(period))
    yield _timed("operations", {"service": values.service}, period, 20, exporter.operations(period))
    yield _timed("attributes", {}, period, 20, exporter.keys(period), "attributes, keys")
    yield _timed(
        "attributes",
        {"key": "http.route"},
        period,
        20,
        exporter.attribute_values(period, "http.route"),
        "attributes, values",
    )


def _numbers(values: Values) -> Iterator[Case]:
    period, day = (values.began, values.ended), values.day
    of_project = {"filter": f"project={values.project}"}
    project = f"{exporter.PROJECT} = {{project:String}}"
    yield _timed("red", {}, period, 30, exporter.red(period, "ServiceName", "1"), "red by service")
    yield Case(
        name=f"chart of p95 by route and deployment of a project, {DAY}",
        question="chart",
        parameters={**_in(day), **of_project, "measure": "p95", "by": "http.route,deployment", "every": "1h"},
    )
    yield _timed(
        "red",
        {"by": "deployment", **of_project},
        period,
        30,
        exporter.red(period, exporter.DEPLOYMENT, project),
        "red by deployment of a project",
    )
    yield _timed("latency", {"filter": f"service={values.service}"}, day, None, None, "latency of a service")
    yield _timed("errors", {}, day, 60, exporter.errors(day))
    yield _timed(
        "deployments",
        of_project,
        period,
        None,
        exporter.deployments(period, project),
        "deployments of a project",
    )
    a, b = values.deployments
    yield _timed("compare", {"a": a, "b": b}, day, 150, None)
    yield _timed("shifts", {"filter": f"project={values.project} status=error"}, day, None, None)
    yield _timed("service-map", {}, day, None, exporter.service_map(day))
    yield _timed("tail", {}, day, None, None)


def _timed(  # noqa: PLR0913, PLR0917 - one row of a table
    question: str,
    parameters: Mapping[str, str],
    period: tuple[datetime, datetime],
    goal_ms: float | None,
    exporter_sql: str | None,
    name: str | None = None,
) -> Case:
    began, ended = period
    return Case(
        name=f"{name or question}, {DAY if (ended - began).days == 1 else TEN_DAYS}",
        question=question,
        parameters={**_in(period), **parameters},
        goal_ms=goal_ms,
        exporter_sql=exporter_sql,
    )


def _in(period: tuple[datetime, datetime]) -> dict[str, str]:
    return {"since": period[0].isoformat(), "until": period[1].isoformat()}
