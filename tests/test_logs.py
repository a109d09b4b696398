"""Tests of the log: a single safe line per event, hidden secrets, rate limits."""

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
from receiver.printable import FIELD_CHARS_MAX
from tests.support.clock import Clock


class Sink(io.StringIO):
    """Stream that records the log lines written to it."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Restore the process-wide logging configuration after each test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def sink() -> Sink:
    stream = Sink()
    logs.set_up("json", process="intake-0", stream=stream)
    return stream


@pytest.mark.parametrize("level", ["info", "warning", "error", "critical"])
def test_logging_to_a_full_disk_raises_nothing(level: str) -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        logs.set_up("json", process="supervisor", stream=full)
        getattr(structlog.get_logger(), level)("process ended")
        logging.getLogger("asyncio").warning("slow")
        with suppress(OSError):
            full.close()


def test_event_is_a_single_line_with_process_time_and_level(sink: Sink) -> None:
    structlog.get_logger().warning("store unavailable", tries=3)

    (line,) = sink.lines()
    assert (line["event"], line["level"], line["process"]) == ("store unavailable", "warning", "intake-0")
    assert line["tries"] == 3
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    "key",
    [
        *("authorization", "Authorization", "api_token", "x-platform-signature"),
        *("password", "set-cookie", "api-key"),
    ],
)
def test_value_of_a_field_with_a_secret_name_is_hidden(sink: Sink, key: str) -> None:
    structlog.get_logger().info(
        "request", **{key: "canary", "headers": {key: "canary"}, "list": [{key: "canary"}]}
    )

    assert "canary" not in sink.getvalue()
    assert sink.lines()[0][key] == "(hidden)"


def test_password_in_a_url_is_hidden(sink: Sink) -> None:
    structlog.get_logger().info(
        "https://user:canary@host/db is unavailable", url="https://user:canary@host/db"
    )

    assert "canary" not in sink.getvalue()
    assert sink.lines()[0]["url"] == "https://user:(hidden)@host/db"


@pytest.mark.parametrize("form", ["json", "console"])
def test_control_and_direction_characters_are_escaped(form: Literal["json", "console"]) -> None:
    sink = Sink()
    logs.set_up(form, process="intake-0", stream=sink)

    structlog.get_logger().info("span", name='a\r\n{"level":"error"}\x1b[31m\u202e\u2028\x9b')

    (line,) = sink.getvalue().splitlines()
    assert not set(line) & set("\r\x1b\u202e\u2028\x9b")
    assert "u202e" in line


def test_long_field_is_truncated(sink: Sink) -> None:
    structlog.get_logger().info("span", name="x" * 1_000_000)

    assert len(sink.lines()[0]["name"]) < 2 * FIELD_CHARS_MAX
    assert sink.lines()[0]["name"].endswith("… (1000000 characters)")


def test_exception_is_logged_with_its_message_and_location(sink: Sink) -> None:
    empty: dict[str, str] = {}
    try:
        empty["x\ny"]
    except KeyError:
        structlog.get_logger().exception("failed")

    (line,) = sink.lines()
    assert line["error"] == "KeyError: 'x\\ny'"
    assert "test_logs.py" in line["raised_at"][-1]


def test_standard_library_logging_uses_the_same_processors(sink: Sink) -> None:
    logging.getLogger("aiohttp.server").error("bad %s", "request\n")
    logging.getLogger("aiohttp.server").info("not logged")

    (line,) = sink.lines()
    assert (line["logger"], line["event"], line["level"]) == ("aiohttp.server", "bad request\\n", "error")


def test_repeated_lines_are_logged_once_in_ten_seconds_with_their_count(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)

    for _ in range(1_000):
        limited.warning("no credentials", "request refused", drain="a")
    limited.warning("too large", "request refused", drain="b")
    clock.now_s += 10.0
    limited.warning("no credentials", "request refused", drain="a")

    assert [(line["drain"], line.get("suppressed")) for line in sink.lines()] == [
        ("a", None),
        ("b", None),
        ("a", 999),
    ]
    assert all("reason" not in line and "key" not in line for line in sink.lines())


def test_suppressed_lines_are_counted_in_a_final_line(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)
    for number in range(3):
        limited.error("disk", "sync failed", segment=number, exc_info=OSError("no space"))

    limited.flush()
    clock.now_s += 10.0
    limited.flush()
    limited.flush()

    first, second = sink.lines()
    assert (first["segment"], first["error"], first.get("suppressed")) == (0, "OSError: no space", None)
    assert (second["segment"], second["error"], second["suppressed"]) == (2, "OSError: no space", 2)
    assert second["level"] == "error"


@pytest.mark.parametrize("name", ["error", "path", "exc_info"])
def test_different_cause_is_logged_although_its_key_is_rate_limited(sink: Sink, name: str) -> None:
    limited = logs.RateLimited(now=Clock())

    for cause in ("HTTP 500", "HTTP 503", "HTTP 500"):
        limited.warning("store", "insert failed", **{name: OSError(cause) if name == "exc_info" else cause})

    assert ["500" in str(line) for line in sink.lines()] == [True, False]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("journal holds 12 KiB; the ceiling is 1 MiB", "journal holds 1.5 MiB; the ceiling is 1 MiB"),
        ("field at byte 812 announces 9000 bytes", "field at byte 7 announces 1 byte"),
        ("about 6 s of work", "about 700 ms of work"),
    ],
)
def test_messages_that_differ_only_in_numbers_have_the_same_cause(
    sink: Sink, first: str, second: str
) -> None:
    limited = logs.RateLimited(now=Clock())

    limited.warning("k", "refused", error=first)
    limited.warning("k", "refused", error=second)

    assert len(sink.lines()) == 1


def test_causes_per_key_are_limited_and_the_rest_is_counted(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)

    for number in range(1_000):
        limited.warning("k", "refused", path=f"/{number}")
    clock.now_s += 10.0
    limited.flush()

    lines = sink.lines()
    assert len(lines) == logs.CAUSES_MAX + 2
    assert lines[-1]["suppressed"] == 1_000 - logs.CAUSES_MAX - 1


def test_lasting_cause_is_logged_at_growing_intervals_and_once_at_its_end(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)

    for _ in range(3_600):
        limited.error("floor", "disk is full", free="1 MiB")
        clock.now_s += 1
        limited.flush()
    for _ in range(int(logs.QUIET_S) + 10):
        clock.now_s += 1
        limited.flush()

    *lines, end = sink.lines()
    assert [line["event"] for line in lines] == ["disk is full"] * 9
    assert [line.get("suppressed", 0) for line in lines[:4]] == [0, 9, 60, 360]
    assert (end["event"], end["level"]) == ("over: disk is full", "info")
    assert (end["count"], end["lasted_s"]) == (3_600, 3_599)


def test_cause_that_recurs_after_its_end_is_logged_at_once(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)
    limited.error("floor", "disk is full")
    clock.now_s += logs.QUIET_S

    limited.error("floor", "disk is full")

    assert [(line["event"], line.get("suppressed")) for line in sink.lines()] == [("disk is full", None)] * 2


def test_number_of_keys_is_limited(sink: Sink) -> None:
    limited = logs.RateLimited(now=Clock())

    for number in range(logs.KEYS_MAX + 100):
        limited.info(f"key {number}", "event")

    assert len(sink.lines()) == logs.KEYS_MAX + 1


def test_quiet_keys_are_replaced_by_new_keys(sink: Sink) -> None:
    clock = Clock()
    limited = logs.RateLimited(now=clock)
    for number in range(logs.KEYS_MAX):
        limited.info(f"key {number}", "event")

    clock.now_s += logs.QUIET_S
    for number in range(2):
        limited.info(f"new key {number}", "new event")

    assert [line["event"] for line in sink.lines()[-2:]] == ["new event", "new event"]
