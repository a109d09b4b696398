"""Logs: one harmless line an event, no secret, no storm."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog

from receiver import logs


class Sink(io.StringIO):
    """Standard error, and what was written to it."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """What a test sets up holds for the process; the next test may be any, the stream is closed by then."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def sink() -> Sink:
    found = Sink()
    logs.set_up("json", process="intake-0", stream=found)
    return found


class Clock:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("level", ["info", "warning", "error", "critical"])
def test_a_log_on_a_full_disk_costs_lines_and_nothing_else(level: str) -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        logs.set_up("json", process="supervisor", stream=full)
        getattr(structlog.get_logger(), level)("process ended")
        logging.getLogger("asyncio").warning("slow")
        with suppress(OSError):
            full.close()


def test_an_event_is_one_line_that_says_who_when_and_how_bad(sink: Sink) -> None:
    structlog.get_logger().warning("store away", tries=3)

    (line,) = sink.lines()
    assert (line["event"], line["level"], line["process"]) == ("store away", "warning", "intake-0")
    assert line["tries"] == 3
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    "key",
    [
        "authorization",
        "Authorization",
        "api_token",
        "x-platform-signature",
        "password",
        "set-cookie",
        "api-key",
    ],
)
def test_what_is_named_as_a_secret_is_hidden(sink: Sink, key: str) -> None:
    structlog.get_logger().info(
        "request", **{key: "canary", "headers": {key: "canary"}, "list": [{key: "canary"}]}
    )

    assert "canary" not in sink.getvalue()
    assert sink.lines()[0][key] == "(hidden)"


def test_a_password_in_a_url_is_hidden(sink: Sink) -> None:
    structlog.get_logger().info("https://user:canary@host/db is away", url="https://user:canary@host/db")

    assert "canary" not in sink.getvalue()
    assert sink.lines()[0]["url"] == "https://user:(hidden)@host/db"


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_input_moves_the_cursor_starts_a_line_or_turns_the_text_around(
    form: Literal["json", "console"],
) -> None:
    sink = Sink()
    logs.set_up(form, process="intake-0", stream=sink)

    structlog.get_logger().info("span", name='a\r\n{"level":"error"}\x1b[31m\u202e\u2028\x9b')

    (line,) = sink.getvalue().splitlines()
    assert not set(line) & set("\r\x1b\u202e\u2028\x9b")
    assert "u202e" in line


def test_a_long_field_is_cut(sink: Sink) -> None:
    structlog.get_logger().info("span", name="x" * 1_000_000)

    assert len(sink.lines()[0]["name"]) < 2 * logs.FIELD_CHARS_MAX
    assert sink.lines()[0]["name"].endswith("… (1000000 characters)")


def test_an_exception_is_told_where_and_what(sink: Sink) -> None:
    nothing: dict[str, str] = {}
    try:
        nothing["x\ny"]
    except KeyError:
        structlog.get_logger().exception("failed")

    (line,) = sink.lines()
    assert line["error"] == "KeyError: 'x\\ny'"
    assert "test_logs.py" in line["raised_at"][-1]


def test_libraries_that_log_the_old_way_go_through_the_same_chain(sink: Sink) -> None:
    logging.getLogger("aiohttp.server").error("bad %s", "request\n")
    logging.getLogger("aiohttp.server").info("not told")

    (line,) = sink.lines()
    assert (line["logger"], line["event"], line["level"]) == ("aiohttp.server", "bad request\\n", "error")


def test_a_storm_is_one_line_per_reason_in_ten_seconds_with_a_count(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)

    for _ in range(100_000):
        limited.warning("no credentials", "refused", drain="a")
    limited.warning("too large", "refused", drain="a")
    clock.now_s = 10.0
    limited.warning("no credentials", "refused", drain="a")

    assert [(line["reason"], line.get("times_more")) for line in sink.lines()] == [
        ("no credentials", None),
        ("too large", None),
        ("no credentials", 99_999),
    ]


def test_what_a_storm_left_out_is_told_when_it_is_over(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)
    for drain in ("a", "b", "c"):
        limited.error("disk", "sync failed", drain=drain)

    limited.flush()
    clock.now_s = 10.0
    limited.flush()
    limited.flush()

    assert [(line.get("times_more"), line["drain"]) for line in sink.lines()] == [(None, "a"), (2, "c")]


def test_a_condition_that_lasts_is_logged_more_and_more_seldom_and_once_when_it_is_over(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)

    for _ in range(3_600):
        limited.error("floor", "disk is full", free="1 MiB")
        clock.now_s += 1
        limited.flush()
    for _ in range(int(logs.QUIET_S) + 10):
        clock.now_s += 1
        limited.flush()

    *lines, over = sink.lines()
    assert [line["event"] for line in lines] == ["disk is full"] * 9
    assert [line.get("times_more", 0) for line in lines[:4]] == [0, 9, 60, 360]
    assert (over["event"], over["level"]) == ("over: disk is full", "info")
    assert (over["times"], over["lasted_s"]) == (3_600, 3_599)


def test_what_comes_back_after_it_was_over_is_logged_at_once(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)
    limited.error("floor", "disk is full")
    clock.now_s += logs.QUIET_S

    limited.error("floor", "disk is full")

    assert [(line["event"], line.get("times_more")) for line in sink.lines()] == [("disk is full", None)] * 2


def test_reasons_are_bounded(sink: Sink) -> None:
    limited = logs.RateLimited(now=Clock())

    for number in range(logs.REASONS_MAX * 2):
        limited.info(f"reason {number}", "event")

    assert len(sink.lines()) == logs.REASONS_MAX + 1
