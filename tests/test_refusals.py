"""Tests of refused requests: folded, limited in memory, and merged over processes."""

from __future__ import annotations

import hmac

import msgspec

from receiver.errors import ANSWER_OF
from receiver.intake.answers import reason_of
from receiver.refusals import (
    ENTRIES_MAX,
    HOUR_S,
    HOURS_MAX,
    OTHERS,
    REMEDIES,
    Refusal,
    RefusalBook,
    RefusalNotes,
    refused,
)
from receiver.settings import Drain
from tests.support.intake import SPAN_BODY, on_uvloop, running

SIGNED = Drain(name="web", signature_header="x-sig", signature_secrets=("canary-secret",))


def test_equal_refusals_are_one_entry_with_a_count() -> None:
    clock = iter((10.0, 20.0, 30.0))
    mine = RefusalNotes(lambda: next(clock))

    for error in ("body of 5 bytes", "body of 6 bytes", "another cause"):
        mine.note("malformed_body", status=400, drain="web", error=error)

    first, second = mine.take()
    assert (first.count, first.first_s, first.last_s) == (2, 10.0, 20.0)
    assert (second.count, second.error) == (1, "another cause")
    assert mine.take() == ()


def test_a_flood_of_causes_needs_limited_memory_and_is_counted_exactly() -> None:
    mine, book = RefusalNotes(lambda: 0.0), RefusalBook()

    for number in range(5_000):
        mine.note("no_such_path", status=404, peer=f"192.0.2.{number}", path=f"/{number}?token=x")
    book.add(mine.take())

    report = book.report()
    assert len(report.newest) <= ENTRIES_MAX
    assert report.newest[0].peer == OTHERS
    assert [hour.count for hour in report.hours] == [5_000]
    assert "token" not in str(report)


def test_a_flood_of_unknown_paths_does_not_hide_the_causes_of_a_drain() -> None:
    mine, book = RefusalNotes(lambda: 0.0), RefusalBook()

    mine.note("malformed_body", status=400, drain="web", error="not OTLP")
    for number in range(1_000):
        mine.note("no_such_path", status=404, peer="192.0.2.1", path=f"/{number}")
        if number == 200:
            mine.note("unsupported_media", status=415, drain="web", error="text/plain")
        if number % 250 == 0:
            book.add(mine.take())

    causes = {refusal.error for refusal in book.report().newest if refusal.drain == "web"}
    assert causes == {"not OTLP", "text/plain"}


def test_the_book_adds_up_processes_and_keeps_a_day() -> None:
    book = RefusalBook()

    for hour in range(30):
        for _intake in range(2):
            book.add([Refusal(reason="overloaded", status=503, last_s=hour * HOUR_S, count=3)])

    report = book.report()
    assert report.newest[0].count == 30 * 6
    assert {hour.count for hour in report.hours} == {6}
    assert len(report.hours) == HOURS_MAX


def test_long_texts_are_shortened_and_control_characters_are_escaped() -> None:
    mine = RefusalNotes()

    mine.note("no_such_path", path=f"/\x1b[31m{'x' * 500}", error="e" * 5_000)

    [entry] = mine.take()
    assert len(msgspec.json.encode(entry)) < 1_000
    assert "\x1b" not in entry.path


@on_uvloop
async def test_a_refusal_names_drain_path_status_and_cause_but_no_secret() -> None:
    refused.take()
    wrong = hmac.new(b"canary-old", SPAN_BODY, "sha1").hexdigest()

    async with running(SIGNED) as intake:
        await intake.post(x_sig=wrong)
        await intake.post(path="/v1/tracez?secret=canary")
        await intake.exchange(b"GET / HTTP/3.7\r\n\r\n")

    by_status = {each.status: each for each in refused.take()}
    assert by_status[403].drain == "web"
    assert "does not match" in by_status[403].error
    assert (by_status[404].drain, by_status[404].path) == ("", "/v1/tracez")
    assert by_status[505].reason == "http_505"
    assert {each.peer for each in by_status.values()} == {"127.0.0.1"}
    assert all(each.remedy for each in by_status.values())
    assert "canary" not in str(by_status)
    assert wrong not in str(by_status)


def test_every_reason_of_the_table_is_one_that_the_intake_uses() -> None:
    reasons = {reason_of(error.__name__) for error in ANSWER_OF}
    others = {"connection", "overloaded_connection", "sender_gone", "body_too_slow"}

    assert set(REMEDIES) <= reasons | others
