"""Streams of events that are followed, through interruptions and in any form, and the delays of attempts."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from email.utils import formatdate
from typing import Any

import pytest

from receiver.platform.client import errors, retries, seen_events
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.event import Event, parse_event
from receiver.platform.client.events import MALFORMED_MAX, EventQuery, follow
from receiver.platform.client.retries import ATTEMPTS_MAX
from receiver.platform.client.seen_events import OVERLAP_MS, SeenEvents
from tests.support.cases import each_case
from tests.support.platform_events import START_MS, Raw, ids, lines, no_sleep, raw_event, state_event
from tests.support.platform_server import Answer, PlatformServer, platform_server

NOW_MS = START_MS + 86_400_000


def whole(*raws: Raw) -> Answer:
    return Answer(pieces=lines(*raws))


def cut(*raws: Raw) -> Answer:
    return Answer(pieces=lines(*raws), is_cut=True)


async def followed(
    server: PlatformServer,
    query: EventQuery | None = None,
    **options: Any,  # noqa: ANN401 - any option
) -> list[Event]:
    async with PlatformClient(server.url, "token", team="team_1", timeout_s=5.0) as client:
        stream = follow(client, "dpl_1", query or EventQuery(), **{"sleep": no_sleep, **options})
        return [event async for event in stream]


RAWS = [raw_event(1, text='a ] } [ { , " \\ \n é 😀'), raw_event(2), state_event(3, "READY")]
FORMS: dict[str, bytes] = {
    "lines": b"".join(lines(*RAWS)),
    "lines without a last line feed": b"".join(lines(*RAWS)).rstrip(),
    "lines with keep-alive": b"\n\n" + b"\r\n\n".join(lines(*RAWS)) + b"\n\n",
    "array": json.dumps(RAWS).encode(),
    "array over lines": b"\n " + json.dumps(RAWS, indent=2, ensure_ascii=False).encode() + b"\n",
    "event stream": b": begin\n\n"
    + b"".join(b"event: log\nid: 1\ndata: " + line + b"\n:\n\n" for line in lines(*RAWS)),
    "event stream with an end": b"".join(b"data:" + line + b"\n" for line in lines(*RAWS))
    + b"data: [DONE]\n\n",
}


@each_case("piece_bytes", [1, 7, 100_000])
@each_case("form", FORMS)
async def test_p25_followed_stream_may_have_any_form(form: str, piece_bytes: int) -> None:
    body = FORMS[form]
    pieces = [body[place : place + piece_bytes] for place in range(0, len(body), piece_bytes)]
    async with platform_server(Answer(pieces=pieces)) as server:
        found = await followed(server)

    assert [event.raw for event in found] == RAWS
    assert len(server.received) == 1
    assert server.received[0].query["follow"] == "1"


async def test_event_is_returned_before_the_stream_ends() -> None:
    first = lines(raw_event(1))[0]
    for begin in (first, b"data: " + first, b"[" + first):
        async with (
            platform_server(Answer(pieces=[begin], hangs=True)) as server,
            PlatformClient(server.url, "token", team="t") as client,
            aclosing(follow(client, "dpl_1", EventQuery())) as stream,
        ):
            assert (await anext(stream)).payload.id == "evt_1"


async def test_stream_is_opened_again_after_the_last_event_without_gap_or_repeat() -> None:
    first, second = lines(*map(raw_event, range(1, 200))), lines(*map(raw_event, range(90, 300)))
    noted: list[errors.PlatformError] = []
    async with platform_server(
        Answer(pieces=[*first, b'{"type": "stdo'], is_cut=True),
        Answer({}, 503),
        Answer(pieces=second, is_cut=True),
        whole(raw_event(298), raw_event(299), state_event(300, "READY")),
    ) as server:
        query = EventQuery(limit=5, status_code="5xx")
        found = await followed(server, query, on_interruption=noted.append)

    assert ids(found) == [f"evt_{number}" for number in range(1, 301)]
    since = [received.query.get("since") for received in server.received]
    assert since[0] is None
    assert since[1] == since[2] == str(START_MS + 199 * 100 - OVERLAP_MS)
    assert since[3] == str(START_MS + 299 * 100 - OVERLAP_MS)
    # A limit would leave out events of the time without a connection.
    assert [received.query["limit"] for received in server.received] == ["5", "-1", "-1", "-1"]
    assert {received.query["statusCode"] for received in server.received} == {"5xx"}
    assert [type(note) for note in noted] == [errors.AnswerCut, errors.ServerFailed, errors.AnswerCut]


async def test_since_never_goes_back_before_the_query() -> None:
    async with platform_server(cut(raw_event(1)), whole(state_event(2, "READY"))) as server:
        await followed(server, EventQuery(since=START_MS))

    assert [received.query["since"] for received in server.received] == [str(START_MS)] * 2


FIRST, READY = raw_event(1), state_event(3, "READY")
FAR, READY_FAR = raw_event(10_000), state_event(10_001, "READY")
LATE = {**raw_event(2), "created": START_MS - OVERLAP_MS + 1_000}


@each_case(
    ("answers", "numbers"),
    [
        pytest.param(
            [cut(FIRST, FAR), whole(FIRST, FAR, READY_FAR)], [1, 10_000, 10_001], id="before the window"
        ),
        pytest.param([cut(FIRST), whole(LATE, FIRST, READY)], [1, 2, 3], id="readable minutes late"),
        pytest.param([whole(FIRST, FIRST, READY)], [1, 3], id="sent twice"),
        pytest.param(
            [Answer(pieces=[*lines(FIRST), b'{"type": "stdout", "crea']), whole(FIRST, raw_event(2), READY)],
            [1, 2, 3],
            id="line that is cut",
        ),
    ],
)
async def test_each_event_is_returned_once(answers: list[Answer], numbers: list[int]) -> None:
    async with platform_server(*answers) as server:
        assert ids(await followed(server)) == [f"evt_{number}" for number in numbers]


@pytest.mark.parametrize("platform_is_behind", [False, True])
async def test_event_with_a_time_in_the_future_does_not_hide_later_events(
    *, platform_is_behind: bool
) -> None:
    now_ms = START_MS if platform_is_behind else int(time.time() * 1_000)
    headers = {"Date": formatdate(now_ms / 1_000, usegmt=True)}
    first, ahead, later = (
        {**raw_event(number), "created": now_ms + after_ms}
        for number, after_ms in ((1, 0), (2, 3_600_000), (3, 10))
    )
    ready = {**state_event(4, "READY"), "created": now_ms + 20}
    async with platform_server(
        Answer(pieces=lines(first, ahead), is_cut=True, headers=headers),
        Answer(pieces=lines(first, later, ready, ahead), headers=headers),
    ) as server:
        found = await followed(server)

    newest_ms = int(server.received[1].query["since"]) + OVERLAP_MS
    assert now_ms - 1_000 <= newest_ms <= now_ms + 60_000
    assert ids(found) == ["evt_1", "evt_2", "evt_3", "evt_4"]


async def test_equal_events_without_an_id_are_all_returned_once() -> None:
    dot = {"type": "stdout", "created": START_MS, "payload": {"text": "."}}
    async with platform_server(
        cut(dot, dot, dot), whole(dot, dot, dot, dot, state_event(1, "READY"))
    ) as server:
        found = await followed(server)

    assert [event.payload.text for event in found].count(".") == 4


@each_case("state", ["READY", "ERROR", "CANCELED", "ready"])
async def test_p26_stream_ends_with_a_final_state(state: str) -> None:
    async with platform_server(whole(raw_event(1), state_event(2, state))) as server:
        await followed(server)

    assert len(server.received) == 1


@each_case("state", ["BUILDING", "SOMETHING_NEW"])
async def test_p26_stream_without_a_known_final_state_ends_when_nothing_new_comes(state: str) -> None:
    async with platform_server(
        whole(state_event(1, state)), whole(state_event(1, state), raw_event(2)), whole(raw_event(2))
    ) as server:
        assert ids(await followed(server)) == ["evt_1", "evt_2"]

    assert len(server.received) == 4


async def test_first_connection_has_limited_attempts() -> None:
    async with platform_server(Answer({}, 503)) as server:
        with pytest.raises(errors.ServerFailed):
            await followed(server)

    assert len(server.received) == ATTEMPTS_MAX


async def test_later_connections_have_unlimited_attempts() -> None:
    failures = [Answer({}, 503)] * (3 * ATTEMPTS_MAX)
    delays: list[float] = []

    async def sleep(delay_s: float) -> None:
        delays.append(delay_s)

    async with platform_server(
        cut(raw_event(1)), *failures, Answer({}, 429, {"Retry-After": "7"}), whole(state_event(2, "READY"))
    ) as server:
        assert ids(await followed(server, sleep=sleep)) == ["evt_1", "evt_2"]

    assert len(delays) == len(failures) + 2
    assert delays[-1] >= 7


@each_case(
    ("answer", "kind"),
    [
        (Answer({}, 404), errors.NotFound),
        (Answer({}, 401), errors.NotAuthorized),
        (Answer({"code": "integration_configuration_disabled"}, 403), errors.ConfigurationDisabled),
        (Answer({}, 429, {"Retry-After": "86400"}), errors.RateLimited),
    ],
)
async def test_permanent_failure_ends_a_followed_stream(
    answer: Answer, kind: type[errors.PlatformError]
) -> None:
    async with platform_server(cut(raw_event(1)), answer) as server:
        with pytest.raises(kind):
            await followed(server)

    assert len(server.received) == 2


@each_case("text", [b"upstream timed out\n", b'{"error": "x"}\n', b"data: {]\n", b"[1]"])
async def test_malformed_event_is_an_error_after_some_connections(text: bytes) -> None:
    async with platform_server(Answer(pieces=[text])) as server:
        with pytest.raises(errors.WrongAnswer):
            await followed(server)

    assert len(server.received) == MALFORMED_MAX


async def test_silent_stream_is_opened_again() -> None:
    async with (
        platform_server(
            Answer(pieces=lines(raw_event(1)), hangs=True), whole(raw_event(1), state_event(2, "READY"))
        ) as server,
        PlatformClient(server.url, "token", team="t", timeout_s=0.3) as client,
    ):
        found = [event async for event in follow(client, "dpl_1", EventQuery(), sleep=no_sleep)]

    assert ids(found) == ["evt_1", "evt_2"]


async def test_backward_stream_cannot_be_followed() -> None:
    async with platform_server(Answer([])) as server:
        with pytest.raises(errors.InvalidCall):
            await followed(server, EventQuery(direction="backward"))


class EndlessClient(PlatformClient):
    """Client whose streams are generated, and are cut after a number of events."""

    def __init__(self, per_connection: int) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self._per_connection = per_connection
        self._next = 0

    @asynccontextmanager
    async def stream(self, *_: object) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        begin = max(0, self._next - 50)
        self._next = begin + self._per_connection
        for number in range(begin, self._next):
            yield lines(raw_event(number))[0]
        raise errors.AnswerCut("cut")


async def test_memory_stays_flat_over_many_events_and_connections() -> None:
    total, found, sizes = 100_000, 0, []
    stream = follow(EndlessClient(5_000), "dpl_1", EventQuery(), sleep=no_sleep)
    async with aclosing(stream):
        async for event in stream:
            assert event.payload.id == f"evt_{found}"
            found += 1
            if found == 20_000:
                tracemalloc.start()
            if found >= 20_000 and found % 20_000 == 0:
                sizes.append(tracemalloc.get_traced_memory()[0])
            if found == total:
                break
    tracemalloc.stop()

    assert found == total
    # Less than a byte for each event of the 80,000.
    assert max(sizes[1:]) - min(sizes[1:]) < 80_000


def test_number_of_known_events_is_limited_and_an_event_is_repeated_rather_than_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seen_events, "SEEN_MAX", 100)
    seen = SeenEvents(None)
    burst = [parse_event(json.dumps({**raw_event(1), "n": number}).encode()) for number in range(1_000)]

    assert all(seen.is_new(event, NOW_MS) for event in burst)
    since_ms = seen.since_ms()
    seen.begin_connection()

    # No event of the burst may be missed, so its millisecond is read again.
    assert since_ms == START_MS + 100
    assert not any(seen.is_new(event, NOW_MS) for event in burst[-100:])
    assert seen.is_new(parse_event(json.dumps({**raw_event(1), "n": 1_000}).encode()), NOW_MS)


async def test_closed_iterator_closes_its_connection() -> None:
    async with (
        platform_server(Answer(pieces=lines(raw_event(1)), hangs=True)) as server,
        PlatformClient(server.url, "token", team="t") as client,
    ):
        stream = follow(client, "dpl_1", EventQuery())
        await anext(stream)
        await asyncio.wait_for(stream.aclose(), 5)
        await asyncio.wait_for(server.is_left.wait(), 60)


def test_delays_grow_to_a_limit_and_have_jitter() -> None:
    longest, none = retries.delays_s(lambda: 0.0), retries.delays_s(lambda: 1.0)

    assert [next(longest) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert next(none) == 0


@each_case(
    ("text", "seconds"),
    [
        ("5", 5.0),
        (" 0 ", 0.0),
        ("9" * 400, 1e9),
        ("Thu, 01 Jan 1970 00:17:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-1", None),
        ("1e9", None),
        ("nan", None),
        ("٣", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retries.parse_retry_after(text, 1_000.0) == seconds
