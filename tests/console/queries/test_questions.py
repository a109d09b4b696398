"""The table of questions: each is a command, and its answer has the form that the API describes."""

from __future__ import annotations

import random

import click
import msgspec
import pytest

from receiver.cli import VERBS, main
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.platform.deployment_events.event_table import store_events
from tests.support.answers import ask
from tests.support.cases import each_case
from tests.support.deployment_events import NOW_MS, build_line
from tests.support.random_filters import NOW_S, Span, random_span

CALLS = [
    ("search", {"filter": "root"}),
    ("spans", {"service": "web"}),
    ("services", {}),
    ("operations", {"service": "web"}),
    ("attributes", {}),
    ("attributes", {"key": "http.route"}),
    ("service-map", {}),
    ("red", {}),
    ("red", {"by": "http.route", "every": "5m", "spans": "all"}),
    ("chart", {"by": "service,http.route", "measure": "p95", "every": "5m"}),
    ("latency", {}),
    ("errors", {}),
    ("deployments", {}),
    ("deployment-events", {"deployment": "dpl_1", "kind": "build"}),
    ("compare", {"a": "", "b": "dpl_1"}),
    ("shifts", {"filter": "has-error"}),
    ("tail", {"after": "0"}),
]
"""Questions with parameters for which the store has an answer."""


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(5)
    spans = [random_span(rng, number) for number in range(300)]
    call = {"TraceId": spans[0]["TraceId"], "ParentSpanId": spans[0]["SpanId"], "SpanKind": "Server"}
    called = {**spans[0], **call, "SpanId": "a" * 16, "ServiceName": "called", "start_ns": NOW_S * 10**9}
    return [*spans, called]


def test_every_question_is_tried_here() -> None:
    assert {name for name, _ in CALLS} == set(QUESTIONS)


@each_case("name", QUESTIONS)
def test_every_question_is_a_command_with_its_sentence(name: str) -> None:
    command = main.get_command(click.Context(main), name)

    assert command is not None
    assert (command.help or "").startswith(QUESTIONS[name].summary)
    assert VERBS[name] == QUESTIONS[name].summary


@pytest.fixture(scope="module")
def deployment_event(store: Store) -> None:
    store_events(store, "prj_1", "dpl_1", [build_line(1)], NOW_MS)


@pytest.mark.usefixtures("deployment_event")
@each_case(("name", "parameters"), CALLS)
def test_answer_has_the_described_form(store: Store, name: str, parameters: dict[str, str]) -> None:
    rows = ask(store, name, **parameters)

    assert rows
    msgspec.convert(rows, list[QUESTIONS[name].row])  # type: ignore[misc]  # a type of the table


@each_case("name", QUESTIONS)
def test_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(MalformedBody, match="unknown parameter"):
        QUESTIONS[name].parse({"s3cret": "1"})
