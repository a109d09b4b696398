"""Responses that are lost, cut, late or not from ClickHouse, to each kind of query of the writer."""

from __future__ import annotations

import pytest

from tests.faults import failures
from tests.faults.proxy import Failure
from tests.faults.test_answers import drain_through_failures
from tests.faults.writer_harness import WriterHarness
from tests.support.cases import each_case


@pytest.fixture
def patience_s() -> int:
    return 1


TORN = [
    pytest.param(failures.reset, id="connection reset"),
    pytest.param(failures.lost, id="applied and reset"),
    pytest.param(failures.hung, id="never answered"),
    pytest.param(failures.lost_and_hung, id="applied and never answered"),
    pytest.param(failures.half_of_the_headers, id="half of the headers, then nothing"),
    pytest.param(failures.closed_in_the_headers, id="status line, then closed"),
    pytest.param(failures.closed_in_the_body, id="half of the body, then closed"),
    pytest.param(failures.hung_in_the_body, id="half of the body, then nothing"),
    pytest.param(failures.empty_success, id="200 and an empty body"),
    pytest.param(failures.page(200), id="200 and an HTML page"),
    pytest.param(failures.slow(1.5), id="answered after the time-out"),
]


@pytest.mark.fault("the response to an INSERT is lost, cut, late, or not from ClickHouse")
@each_case("failure", TORN)
def test_insert_without_a_complete_response_is_stored_once(harness: WriterHarness, failure: Failure) -> None:
    drain_through_failures(harness, failure)

    harness.assert_stored_once()


@pytest.mark.fault("the response to a count is lost, cut, late, or not from ClickHouse")
@each_case("failure", TORN)
def test_count_without_a_complete_response_is_repeated(harness: WriterHarness, failure: Failure) -> None:
    drain_through_failures(harness, failure, on="count")

    harness.assert_stored_once()
    assert {name.rpartition("#")[2] for name in harness.proxy.inserts} == {"0"}


@pytest.mark.fault("the response to the query for running INSERTs is lost, cut, late, or not from ClickHouse")
@each_case("failure", TORN)
def test_process_list_without_a_complete_response_is_queried_again(
    harness: WriterHarness, failure: Failure
) -> None:
    drain_through_failures(harness, failure, on="running")

    harness.assert_stored_once()
