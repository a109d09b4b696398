"""Structured logs: one line an event, on standard error, as JSON or for a human.

Levels say what was lost: INFO something finished; WARNING we recovered, nothing lost; ERROR spans lost or a
human needed.

Keeps: no secret in any field, no control character in any line, no field longer than `FIELD_CHARS_MAX`; a log
    that cannot be written, its disk full or its reader gone, costs lines and nothing else.
Never: a byte of a body.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from receiver.settings import KIB

FIELD_CHARS_MAX = 2 * KIB
REASONS_MAX = 1_024
"""Reasons that are counted apart; what is more goes under `other`."""
REPEAT_S = 10.0
"""Between the first two lines for one reason; then it grows by `REPEAT_GROWTH`, to `REPEAT_S_MAX`."""
REPEAT_GROWTH = 6
REPEAT_S_MAX = 600.0
QUIET_S = 200.0
"""What has not occurred for so long is over. An INSERT that times out is tried again after 180 s at most."""
HIDDEN = "(hidden)"

_SECRET_KEY = re.compile(
    r"authorization|cookie|token|secret|password|signature|api.?key|credential", re.IGNORECASE
)
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]*@")
_FIRST = ("timestamp", "level", "process", "event")
_ITEMS_MAX = 64
_DEPTH_MAX = 4


CHATTERS = ("urllib3", "clickhouse_connect")
"""They log what they raise as well, once for each try: what we catch we log ourselves, once in a while."""


def set_up(
    log_format: Literal["auto", "json", "console"], *, process: str, stream: TextIO | None = None
) -> None:
    """Send everything this process logs, standard library included, through one chain."""
    sink = stream or sys.stderr
    for_a_human = log_format == "console" or (log_format == "auto" and sink.isatty())
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=sink.isatty(), pad_event_to=0)
        if for_a_human
        else structlog.processors.JSONRenderer(sort_keys=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _Named(process),
            _exception_as_text,
            _harmless,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: _Tolerant(sink),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    hush_chatters()


def hush_chatters() -> None:
    """Keep libraries from telling what we tell ourselves."""
    for chatter in CHATTERS:
        logging.getLogger(chatter).setLevel(logging.CRITICAL)


@dataclass(slots=True)
class _Episode:
    """One reason for as long as it occurs again and again."""

    level: str
    event: str
    fields: Mapping[str, object]
    """Of the latest occurrence."""
    begun_at_s: float
    logged_at_s: float
    last_at_s: float
    times: int = 1
    left_out: int = 0
    repeat_s: float = REPEAT_S


class RateLimited:
    """Logs what occurs again and again: when it begins, more and more seldom, and when it is over."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._episodes: dict[str, _Episode] = {}

    def info(self, reason: str, event: str, **fields: object) -> None:
        """Something finished."""
        self._occur("info", reason, event, fields)

    def warning(self, reason: str, event: str, **fields: object) -> None:
        """We recovered, nothing lost."""
        self._occur("warning", reason, event, fields)

    def error(self, reason: str, event: str, **fields: object) -> None:
        """Spans lost, or a human needed."""
        self._occur("error", reason, event, fields)

    def flush(self) -> None:
        """Log counts that are due, and what is over. The process loop calls it every second."""
        now_s = self._now()
        for reason, episode in list(self._episodes.items()):
            if now_s - episode.last_at_s >= QUIET_S:
                self._end(reason, episode)
            elif episode.left_out and now_s - episode.logged_at_s >= episode.repeat_s:
                self._repeat(reason, episode)

    def _occur(self, level: str, reason: str, event: str, fields: Mapping[str, object]) -> None:
        if reason not in self._episodes and len(self._episodes) >= REASONS_MAX:
            reason = "other"
        now_s = self._now()
        episode = self._episodes.get(reason)
        if episode is not None and now_s - episode.last_at_s >= QUIET_S:
            self._end(reason, episode)
            episode = None
        if episode is None:
            self._episodes[reason] = _Episode(level, event, fields, now_s, now_s, now_s)
            _log(level, event, reason, fields)
            return
        episode.level, episode.event, episode.fields, episode.last_at_s = level, event, fields, now_s
        episode.times += 1
        if now_s - episode.logged_at_s >= episode.repeat_s:
            self._repeat(reason, episode)
        else:
            episode.left_out += 1

    def _repeat(self, reason: str, episode: _Episode) -> None:
        more = {"times_more": episode.left_out} if episode.left_out else {}
        _log(episode.level, episode.event, reason, {**episode.fields, **more})
        episode.logged_at_s, episode.left_out = self._now(), 0
        episode.repeat_s = min(episode.repeat_s * REPEAT_GROWTH, REPEAT_S_MAX)

    def _end(self, reason: str, episode: _Episode) -> None:
        """Forget the reason. What occurred once, or within a moment, is over without a line."""
        del self._episodes[reason]
        lasted_s = episode.last_at_s - episode.begun_at_s
        if lasted_s >= REPEAT_S:
            over = {"times": episode.times, "lasted_s": round(lasted_s), "quiet_s": QUIET_S}
            _log("info", f"over: {episode.event}", reason, over)


def _log(level: str, event: str, reason: str, fields: Mapping[str, object]) -> None:
    getattr(structlog.get_logger(), level)(event, reason=reason, **fields)


limited = RateLimited()
"""The process's own. Use it for everything that a sender, a disk or a store can cause again and again."""


def harmless_text(text: str) -> str:
    """Cut, and escape whatever moves a cursor, a colour or the direction of reading."""
    shown = text if len(text) <= FIELD_CHARS_MAX else f"{text[:FIELD_CHARS_MAX]}… ({len(text)} characters)"
    shown = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", shown)
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)


class _Tolerant(structlog.WriteLogger):
    """Writes a line, or loses it."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    info = warning = error = critical = msg


class _Named:
    """Says which process speaks."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["process"] = self._process
        return event


def _exception_as_text(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Where it was raised and what it is; of the standard library's loggers too."""
    found = event.pop("exc_info", None)
    error = sys.exc_info()[1] if found is True else found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["error"], event["raised_at"] = f"{type(error).__name__}: {error}", raised_at(error)
    return event


def raised_at(error: BaseException) -> list[str]:
    """Return the last places of the traceback, without any values."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _harmless(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    ordered = {**{key: event[key] for key in _FIRST if key in event}, **event}
    return {harmless_text(str(key)): _shown(str(key), value, 0) for key, value in ordered.items()}


def _shown(key: str, value: object, depth: int) -> object:
    """Make one field fit to print. Depth is bounded: our own fields, never a sender's structure."""
    if _SECRET_KEY.search(key):
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < _DEPTH_MAX:
        items = list(value.items())[:_ITEMS_MAX]
        return {harmless_text(str(inner)): _shown(str(inner), item, depth + 1) for inner, item in items}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and depth < _DEPTH_MAX:
        return [_shown("", item, depth + 1) for item in value[:_ITEMS_MAX]]
    return harmless_text(str(value))


class _ToStructlog(logging.Handler):
    """Takes what libraries log the old way."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        tell = getattr(structlog.get_logger(), level)
        tell(record.getMessage(), logger=record.name, exc_info=record.exc_info)
