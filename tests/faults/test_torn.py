"""Answers that are lost, cut, late, or none of ClickHouse's: to an INSERT, a count, the list of what runs."""

from __future__ import annotations

import pytest

from tests.faults import wrongs
from tests.faults.desk import Desk
from tests.faults.proxy import Wrong
from tests.faults.test_answers import carry_through


@pytest.fixture
def patience_s() -> int:
    return 1


TORN = [
    pytest.param(wrongs.reset, id="connection reset"),
    pytest.param(wrongs.lost, id="applied and reset"),
    pytest.param(wrongs.hung, id="never answered"),
    pytest.param(wrongs.lost_and_hung, id="applied and never answered"),
    pytest.param(wrongs.half_a_head, id="half of the headers and no more"),
    pytest.param(wrongs.half_a_head_and_the_end, id="status line and end of connection"),
    pytest.param(wrongs.half_a_body, id="half of the body and end of connection"),
    pytest.param(wrongs.half_a_body_and_no_more, id="half of the body and no more"),
    pytest.param(wrongs.cut_at_a_block, id="200 and an empty body"),
    pytest.param(wrongs.page(200), id="200 and a page of HTML"),
    pytest.param(wrongs.slow(1.5), id="answered after the time-out"),
]


@pytest.mark.fault("the answer to an INSERT is lost, cut, late, or none of ClickHouse's")
@pytest.mark.parametrize("wrong", TORN)
def test_an_insert_without_a_whole_answer_is_stored_once(desk: Desk, wrong: Wrong) -> None:
    carry_through(desk, wrong)

    desk.assert_stored_once()


@pytest.mark.fault("the answer to a count is lost, cut, late, or none of ClickHouse's")
@pytest.mark.parametrize("wrong", TORN)
def test_a_count_without_a_whole_answer_is_no_count(desk: Desk, wrong: Wrong) -> None:
    carry_through(desk, wrong, on="count")

    desk.assert_stored_once()
    assert {name.rpartition("#")[2] for name in desk.proxy.inserts} == {"0"}


@pytest.mark.fault("the answer to `what still runs` is lost, cut, late, or none of ClickHouse's")
@pytest.mark.parametrize("wrong", TORN)
def test_a_process_list_without_a_whole_answer_is_none(desk: Desk, wrong: Wrong) -> None:
    desk.proxy.meet(wrongs.lost, times=1)
    carry_through(desk, wrong, on="running")

    desk.assert_stored_once()
