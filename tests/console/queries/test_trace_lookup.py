"""Lookup of a trace by its id: the work does not tell a user with limited projects which traces exist."""

from __future__ import annotations

import random
from typing import Any

import pytest

from receiver.console.api.traces import comparison_answer, trace_answer
from receiver.console.queries.projects import table_filters
from receiver.engine.store import Store
from tests.support.cases import each_case
from tests.support.hostile_filters import RecordingStore
from tests.support.random_filters import Span, random_span

MINE, OF_OTHERS, UNKNOWN = (f"{number:032x}" for number in (1, 2, 3))


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(3)
    return [
        {**random_span(rng, number), "TraceId": trace_id, "ProjectId": project}
        for number, (trace_id, project) in enumerate(((MINE, "mine"), (OF_OTHERS, "others")))
    ]


@each_case("form", ["lines", "otlp-json", "compare"])
def test_trace_of_another_project_takes_the_statements_of_an_unknown_trace(store: Store, form: str) -> None:
    statements: dict[str, list[str]] = {}
    found: dict[str, bytes] = {}
    for trace_id in (MINE, OF_OTHERS, UNKNOWN):
        recording: Any = RecordingStore(store)
        answer = (
            comparison_answer(trace_id, MINE, {})
            if form == "compare"
            else trace_answer(trace_id, {"format": form}, ["mine"])
        )
        with store.marked("lookup", table_filters(["mine"])):
            found[trace_id] = b"".join(answer.pieces(recording))
        statements[trace_id] = recording.statements

    assert found[MINE]
    assert (found[OF_OTHERS], found[UNKNOWN]) == (b"", b"")
    assert statements[OF_OTHERS] == statements[UNKNOWN]
