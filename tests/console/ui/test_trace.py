"""The trace page's columns for the script, and its sentence."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread
from typing import Any

import pytest

from receiver.console.queries.traces.trace_model import Row, trace_of
from receiver.console.queries.traces.traces import rows_of
from receiver.console.ui.pages.trace import columns, sentence
from tests.console.ui.conftest import Client
from tests.console.ui.test_pages import page_of


def row(number: int, parent: int | None, start_ns: int, duration_ns: int, **more: object) -> Row:
    return {
        "SpanId": f"{number:016x}",
        "ParentSpanId": "" if parent is None else f"{parent:016x}",
        "ServiceName": "web",
        "SpanName": f"operation {number}",
        "SpanKind": "Internal",
        "Timestamp": f"2026-01-31 10:00:00.{start_ns:09d}",
        "Duration": duration_ns,
        "StatusCode": "Unset",
        "StatusMessage": "",
        **more,
    }


def test_columns_place_each_span_after_its_parent() -> None:
    rows = [row(2, 1, 10, 40), row(1, None, 0, 100), row(3, 1, 50, 50, StatusCode="Error")]

    values: dict[str, Any] = columns(trace_of(rows))

    assert values["id"] == [f"{number:016x}" for number in (1, 2, 3)]
    assert values["parent"] == [-1, 0, 0]
    assert values["start"] == [0, 10, 50]
    assert values["took"] == [100, 40, 50]
    assert values["errors"] == [2]
    assert values["critical"] == {0: [[0, 10]], 1: [[10, 40]], 2: [[50, 50]]}
    assert values["services"] == ["web"]


def test_sentence_names_the_longest_operation_and_the_errors() -> None:
    rows = [row(1, None, 0, 100_000_000), row(2, 1, 0, 90_000_000, StatusCode="Error", StatusMessage="dead")]

    assert (
        sentence(trace_of(rows)) == "100 ms in 2 spans; 90 ms of it in web operation 2 (90 %); 1 error: dead"
    )


async def test_trace_is_parsed_and_arranged_outside_of_the_event_loop(
    site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, str] = {}

    def recorded(call: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        def recording(value: Any) -> Any:  # noqa: ANN401 - any function
            threads[name] = current_thread().name
            return call(value)

        return recording

    monkeypatch.setattr("receiver.console.api.source.traces.rows_of", recorded(rows_of, "parse"))
    monkeypatch.setattr("receiver.console.ui.pages.trace.trace_of", recorded(trace_of, "arrange"))

    await page_of(site, f"/trace/{1:032x}")

    assert threads.keys() == {"parse", "arrange"}
    assert current_thread().name not in threads.values()


def test_columns_of_100_000_spans_are_not_computed_in_quadratic_time() -> None:
    rows = [row(number, number - 1 if number % 50 else None, number, 10**8) for number in range(100_000)]

    # In quadratic time this takes many minutes, and the timeout of the test ends it.
    values: dict[str, Any] = columns(trace_of(rows))

    assert len(values["id"]) == 100_000
