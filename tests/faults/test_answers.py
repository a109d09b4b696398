"""Responses of a server, or of a proxy in front of it, to an INSERT or a query."""

from __future__ import annotations

import pytest

from tests.faults import failures
from tests.faults.proxy import Failure
from tests.faults.writer_harness import WriterHarness
from tests.support.cases import each_case

FAILURES = 2
"""How many requests fail before the fault ends."""

REFUSALS = [
    pytest.param(60, "hold", id="60 UNKNOWN_TABLE"),
    pytest.param(81, "hold", id="81 UNKNOWN_DATABASE"),
    pytest.param(497, "hold", id="497 ACCESS_DENIED"),
    pytest.param(516, "hold", id="516 AUTHENTICATION_FAILED"),
    pytest.param(193, "hold", id="193 WRONG_PASSWORD"),
    pytest.param(164, "hold", id="164 READONLY"),
    pytest.param(252, "retry_slower", id="252 TOO_MANY_PARTS"),
    pytest.param(241, "retry_slower", id="241 MEMORY_LIMIT_EXCEEDED"),
    pytest.param(242, "retry_slower", id="242 TABLE_IS_READ_ONLY"),
    pytest.param(159, "retry_slower", id="159 TIMEOUT_EXCEEDED"),
    pytest.param(202, "retry_slower", id="202 TOO_MANY_SIMULTANEOUS_QUERIES"),
    pytest.param(203, "retry_slower", id="203 NO_FREE_CONNECTION"),
    pytest.param(210, "retry", id="210 NETWORK_ERROR"),
    pytest.param(999, "retry", id="999 KEEPER_EXCEPTION"),
    pytest.param(1001, "unknown_outcome", id="1001 STD_EXCEPTION"),
]


def drain_through_failures(harness: WriterHarness, failure: Failure, *, on: str = "insert") -> None:
    """Drain two new segments, of one day and of several, while two requests fail."""
    harness.begin()
    harness.add_segment(0, 1, 2, 2)
    harness.add_segment(1)
    if on == "running":
        # The writer lists the running INSERTs after the response to one was lost.
        harness.proxy.inject(failures.lost, times=1)
    harness.proxy.inject(failure, on=on, times=FAILURES)
    harness.drain_journal()


def drain_until_healed(harness: WriterHarness, failure: Failure, *, on: str = "any") -> None:
    """Drain a new segment, while requests fail until the writer has waited `FAILURES` times."""
    harness.begin()
    harness.add_segment(0, 1)
    harness.store.version()
    harness.proxy.inject(failure, on=on)
    harness.on_wait[FAILURES] = harness.proxy.heal
    harness.drain_journal()


@pytest.mark.fault("ClickHouse refuses the INSERT with this error")
@each_case(("code", "fault"), REFUSALS)
def test_insert_refused_by_the_server_is_retried_and_reported(
    harness: WriterHarness, code: int, fault: str
) -> None:
    drain_through_failures(harness, failures.error(code))

    harness.assert_stored_once()
    assert harness.progress.troubles == {fault: FAILURES}
    assert harness.errors[0].startswith(f"{fault}: INJECTED ({code})")


@pytest.mark.fault("ClickHouse refuses every request with this error")
@each_case(("code", "fault"), REFUSALS)
def test_segments_wait_while_every_request_is_refused_and_alarms_count_errors_for_the_operator(
    harness: WriterHarness, code: int, fault: str
) -> None:
    drain_until_healed(harness, failures.error(code))

    harness.assert_stored_once()
    assert harness.progress.troubles == {fault: FAILURES}
    assert (harness.progress.alarms >= FAILURES) == (fault == "hold")


HIDDEN_EXCEPTIONS = [
    pytest.param(failures.ok_but(failures.exception(241)), id="exception as the whole body"),
    pytest.param(
        failures.ok_but("some output\n" + failures.exception(241)), id="exception after a partial body"
    ),
    pytest.param(
        failures.ok_but(failures.exception(241), X_ClickHouse_Exception_Code="241"),
        id="exception in header and body",
    ),
    pytest.param(failures.ok_but("", X_ClickHouse_Exception_Code="241"), id="exception only in the header"),
    pytest.param(
        failures.ok_but("", X_ClickHouse_Exception_Code="241", X_ClickHouse_Summary='{"read_rows":"3"}'),
        id="exception in the header, next to a valid summary",
    ),
    pytest.param(
        failures.ok_but(failures.exception_as_json(241)),
        id="exception by http_write_exception_in_output_format",
    ),
    pytest.param(
        failures.ok_but('{"data":[],\n"exception": "' + failures.exception(241) + '"\n}'),
        id="exception at the end of a JSON document",
    ),
    pytest.param(
        failures.ok_but(
            "__exception__\r\nabcdefghijklmnop\r\n" + failures.exception(241) + "\r\n__exception__"
        ),
        id="exception between markers, as newer servers send it",
    ),
]


@pytest.mark.fault("ClickHouse answers an INSERT with 200 and an exception; nothing was applied")
@each_case("failure", HIDDEN_EXCEPTIONS)
def test_status_200_with_an_exception_is_an_error(harness: WriterHarness, failure: Failure) -> None:
    drain_through_failures(harness, failure)

    harness.assert_stored_once()
    assert harness.progress.troubles == {"retry_slower": FAILURES}


@pytest.mark.fault("ClickHouse answers a query with 200 and an exception")
@each_case("failure", HIDDEN_EXCEPTIONS)
def test_count_answered_with_an_exception_is_repeated(harness: WriterHarness, failure: Failure) -> None:
    drain_through_failures(harness, failure, on="count")

    harness.assert_stored_once()
    assert sum(harness.progress.troubles.values()) == FAILURES


@pytest.mark.fault("ClickHouse applies an INSERT and answers it with 200 and an exception")
def test_insert_applied_before_its_exception_is_not_sent_again(harness: WriterHarness) -> None:
    drain_through_failures(harness, failures.applied_ok_but(failures.exception(241)))

    harness.assert_stored_once()
    assert len(harness.proxy.inserts) == 2


PROXY_RESPONSES = [
    pytest.param(failures.page(502), "retry_slower", id="502 of a proxy"),
    pytest.param(failures.page(503), "retry_slower", id="503 of a proxy"),
    pytest.param(failures.page(504), "retry_slower", id="504 of a proxy"),
    pytest.param(failures.page(429), "retry_slower", id="429 of a proxy"),
    pytest.param(failures.page(413), "hold", id="413 of a proxy"),
    pytest.param(failures.page(400), "hold", id="400 of a proxy"),
    pytest.param(failures.page(401), "hold", id="401 of a proxy"),
    pytest.param(failures.page(403), "hold", id="403 of a proxy"),
    pytest.param(failures.page(404), "hold", id="404 of a proxy"),
    *[
        pytest.param(failures.page(status, Location="http://127.0.0.1:9/"), "hold", id=f"{status} redirect")
        for status in (301, 302, 303, 307, 308)
    ],
]


@pytest.mark.fault("an INSERT is answered with 502 and an empty body")
def test_refusal_without_a_body_is_reported_by_its_status(harness: WriterHarness) -> None:
    drain_until_healed(harness, failures.empty_response(502), on="insert")

    harness.assert_stored_once()
    assert harness.errors[0].startswith("retry_slower: HTTP 502 at ")


@pytest.mark.fault("a proxy in front of ClickHouse answers instead of it")
@each_case(("failure", "fault"), PROXY_RESPONSES)
def test_response_of_a_proxy_makes_the_segment_wait_and_is_reported(
    harness: WriterHarness, failure: Failure, fault: str
) -> None:
    drain_until_healed(harness, failure)

    harness.assert_stored_once()
    assert harness.progress.troubles == {fault: FAILURES}
    assert harness.errors[0].startswith(f"{fault}: HTTP ")
    assert (harness.progress.alarms >= FAILURES) == (fault == "hold")
