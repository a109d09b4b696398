"""What a server, or a proxy before it, may answer to an INSERT or a question, and what must come of it."""

from __future__ import annotations

import pytest

from tests.faults import wrongs
from tests.faults.desk import Desk
from tests.faults.proxy import Wrong

TRIES = 2
"""How often it goes wrong before it is mended."""

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


def carry_through(desk: Desk, wrong: Wrong, *, on: str = "insert") -> None:
    """Two segments, of one day and of several, while it goes wrong twice."""
    desk.file(0, 1, 2, 2)
    desk.file(1)
    desk.proxy.meet(wrong, on=on, times=TRIES)
    desk.carry()


@pytest.mark.fault("ClickHouse refuses the INSERT with this error")
@pytest.mark.parametrize(("code", "fault"), REFUSALS)
def test_a_refused_insert_is_sent_again_and_told(desk: Desk, code: int, fault: str) -> None:
    carry_through(desk, wrongs.error(code))

    desk.assert_stored_once()
    assert desk.progress.troubles == {fault: TRIES}
    assert desk.told[0].startswith(f"{fault}: INJECTED ({code})")


@pytest.mark.fault("ClickHouse refuses everything it is asked with this error")
@pytest.mark.parametrize(("code", "fault"), REFUSALS)
def test_while_everything_is_refused_the_segments_wait_and_a_human_is_called_where_one_is_needed(
    desk: Desk, code: int, fault: str
) -> None:
    desk.file(0, 1)
    desk.store.version()
    desk.proxy.meet(wrongs.error(code), on="any")
    desk.on_nap[TRIES] = desk.proxy.mend

    desk.carry()

    desk.assert_stored_once()
    assert desk.progress.troubles == {fault: TRIES}
    assert (desk.progress.alarms >= TRIES) == (fault == "hold")


LIES = [
    pytest.param(wrongs.ok_but(wrongs.exception(241)), id="exception as the whole body"),
    pytest.param(
        wrongs.ok_but("some output\n" + wrongs.exception(241)), id="exception behind a partial body"
    ),
    pytest.param(
        wrongs.ok_but(wrongs.exception(241), X_ClickHouse_Exception_Code="241"),
        id="exception in header and body",
    ),
    pytest.param(wrongs.ok_but("", X_ClickHouse_Exception_Code="241"), id="exception in the header alone"),
    pytest.param(
        wrongs.ok_but("", X_ClickHouse_Exception_Code="241", X_ClickHouse_Summary='{"read_rows":"3"}'),
        id="exception in the header, beside a summary that is right",
    ),
    pytest.param(
        wrongs.ok_but(wrongs.exception_as_json(241)), id="exception by http_write_exception_in_output_format"
    ),
    pytest.param(
        wrongs.ok_but('{"data":[],\n"exception": "' + wrongs.exception(241) + '"\n}'),
        id="exception at the end of a JSON document",
    ),
    pytest.param(
        wrongs.ok_but("__exception__\r\nabcdefghijklmnop\r\n" + wrongs.exception(241) + "\r\n__exception__"),
        id="exception between marks, as newer servers do it",
    ),
]


@pytest.mark.fault("ClickHouse answers an INSERT with 200 and an exception; nothing was applied")
@pytest.mark.parametrize("wrong", LIES)
def test_a_200_with_an_exception_is_an_error(desk: Desk, wrong: Wrong) -> None:
    carry_through(desk, wrong)

    desk.assert_stored_once()
    assert desk.progress.troubles == {"retry_slower": TRIES}


@pytest.mark.fault("ClickHouse answers a question with 200 and an exception")
@pytest.mark.parametrize("wrong", LIES)
def test_a_count_answered_with_an_exception_is_no_count(desk: Desk, wrong: Wrong) -> None:
    carry_through(desk, wrong, on="count")

    desk.assert_stored_once()
    assert sum(desk.progress.troubles.values()) == TRIES


@pytest.mark.fault("ClickHouse applies an INSERT, and answers it with 200 and an exception")
def test_an_insert_that_was_applied_before_its_exception_is_not_sent_again(desk: Desk) -> None:
    carry_through(desk, wrongs.applied_ok_but(wrongs.exception(241)))

    desk.assert_stored_once()
    assert len(desk.proxy.inserts) == 2


PAGES = [
    pytest.param(wrongs.page(502), "retry_slower", id="502 of a proxy"),
    pytest.param(wrongs.page(503), "retry_slower", id="503 of a proxy"),
    pytest.param(wrongs.page(504), "retry_slower", id="504 of a proxy"),
    pytest.param(wrongs.page(429), "retry_slower", id="429 of a proxy"),
    pytest.param(wrongs.page(413), "hold", id="413 of a proxy"),
    pytest.param(wrongs.page(400), "hold", id="400 of a proxy"),
    pytest.param(wrongs.page(401), "hold", id="401 of a proxy"),
    pytest.param(wrongs.page(403), "hold", id="403 of a proxy"),
    pytest.param(wrongs.page(404), "hold", id="404 of a proxy"),
    *[
        pytest.param(wrongs.page(status, Location="http://127.0.0.1:9/"), "hold", id=f"{status} elsewhere")
        for status in (301, 302, 303, 307, 308)
    ],
]


@pytest.mark.fault("an INSERT is answered 502 without a word")
def test_an_insert_that_is_refused_without_a_word_is_told_by_its_status(desk: Desk) -> None:
    desk.file(0, 1)
    desk.proxy.meet(wrongs.bare(502))
    desk.on_nap[TRIES] = desk.proxy.mend

    desk.carry()

    desk.assert_stored_once()
    assert desk.told[0].startswith("retry_slower: HTTP 502 at ")


@pytest.mark.fault("a proxy before ClickHouse answers instead of it")
@pytest.mark.parametrize(("wrong", "fault"), PAGES)
def test_a_proxys_own_answer_holds_the_segment_and_says_so(desk: Desk, wrong: Wrong, fault: str) -> None:
    desk.file(0, 1)
    desk.store.version()
    desk.proxy.meet(wrong, on="any")
    desk.on_nap[TRIES] = desk.proxy.mend

    desk.carry()

    desk.assert_stored_once()
    assert desk.progress.troubles == {fault: TRIES}
    assert desk.told[0].startswith(f"{fault}: HTTP ")
    assert (desk.progress.alarms >= TRIES) == (fault == "hold")
