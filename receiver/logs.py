"""Structured logs: one line per event on standard error, as JSON or for a terminal.

Levels: INFO, something finished; WARNING, the receiver recovered and lost nothing; ERROR, spans were lost or
an operator must act.

Invariant: no secret in any field, no control character in any line, no field longer than `FIELD_CHARS_MAX`.
A log that cannot be written (disk full, reader gone) loses lines and affects nothing else.
Never: logs a byte of a body.
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

from receiver.printable import HIDDEN, harmless_text

KEYS_MAX = 1_024
"""Maximum number of rate-limiting keys. Further keys share one entry."""
CAUSES_MAX = 8
"""Maximum number of causes per key. Further causes share one line."""
REPEAT_S = 10.0
"""Time between the first two lines of a cause. It grows by `REPEAT_GROWTH` up to `REPEAT_S_MAX`."""
REPEAT_GROWTH = 6
REPEAT_S_MAX = 600.0
QUIET_S = 200.0
"""Time without a line after which a cause counts as ended. INSERTs retry after at most 180 s."""
CAUSE_FIELDS = ("error", "path")
"""The fields that identify the cause of a line."""
CAUSE_CHARS_MAX = 512
"""Length up to which these fields are compared."""
OTHER = "(other)"
"""Key, event and cause that lines beyond these limits share."""

_SECRET_KEY = re.compile(
    r"authorization|cookie|token|secret|password|signature|api.?key|credential", re.IGNORECASE
)
# Possessive, so that a long run of digits causes no backtracking.
_MEASURED = re.compile(r"(?<!\d)\d++(?:\.\d++)? ?(?:bytes?|[KMGTP]iB|m?s|spans?|rows?)\b|(?<=byte )\d++")
"""Numbers that change from line to line: those with a unit, and offsets. Other numbers can be codes."""
_FIRST = ("timestamp", "level", "process", "event")
_ITEMS_MAX = 64
_DEPTH_MAX = 4


def set_up(
    log_format: Literal["auto", "json", "console"], *, process: str, stream: TextIO | None = None
) -> None:
    """Configure logging of this process, the standard library's included."""
    sink = stream or sys.stderr
    for_terminal = log_format == "console" or (log_format == "auto" and sink.isatty())
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=sink.isatty(), pad_event_to=0)
        if for_terminal
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


@dataclass(slots=True)
class _Episode:
    """One cause of a rate-limited line, from its first occurrence until it counts as over."""

    begun_at_s: float
    logged_at_s: float
    last_at_s: float
    level: str
    fields: Mapping[str, object]
    """Fields of the latest occurrence. No exception: its traceback would keep a body in memory."""
    count: int = 1
    suppressed_count: int = 0
    repeat_s: float = REPEAT_S


class RateLimited:
    """Rate limiter: logs each cause when it begins, less and less often while it lasts, and when it is over.

    A line with another key, event or cause is another line, up to `CAUSES_MAX` causes per key and event;
    further causes share one.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._episodes: dict[tuple[str, str], dict[str, _Episode]] = {}
        """Current causes, by key and event, then by cause."""

    def info(self, key: str, event: str, **fields: object) -> None:
        """Log that something finished."""
        self._log("info", key, event, fields)

    def warning(self, key: str, event: str, **fields: object) -> None:
        """Log that the receiver recovered and lost nothing."""
        self._log("warning", key, event, fields)

    def error(self, key: str, event: str, **fields: object) -> None:
        """Log that spans were lost, or that an operator must act."""
        self._log("error", key, event, fields)

    def flush(self) -> None:
        """Log the suppressed lines that are due, and the causes that are over. Called every second."""
        now_s = self._now()
        # Copies: a log call of another thread may change the dictionaries meanwhile.
        for (key, event), causes in list(self._episodes.items()):
            for cause, episode in list(causes.items()):
                if now_s - episode.last_at_s >= QUIET_S:
                    causes.pop(cause, None)  # another thread may have flushed it
                    _log_end(event, episode)
                elif episode.suppressed_count and self._is_due(episode):
                    self._repeat(event, episode)
            if not causes:
                self._episodes.pop((key, event), None)

    def _log(self, level: str, key: str, event: str, fields: Mapping[str, object]) -> None:
        causes = self._causes_of(key, event)
        cause, now_s = _cause_of(fields), self._now()
        # Memory must stay limited even if a sender can vary the cause.
        if cause not in causes and len(causes) >= CAUSES_MAX:
            cause = OTHER
        episode = causes.get(cause)
        # The cause is over, but `flush` has not removed it yet.
        if episode is not None and now_s - episode.last_at_s >= QUIET_S:
            _log_end(event, episode)
            episode = None
        if episode is None:
            causes[cause] = _Episode(now_s, now_s, now_s, level, _without_exception(fields))
            _write(level, event, fields)
            return
        episode.level, episode.fields, episode.last_at_s = level, _without_exception(fields), now_s
        episode.count += 1
        if self._is_due(episode):
            self._repeat(event, episode)
        else:
            episode.suppressed_count += 1

    def _causes_of(self, key: str, event: str) -> dict[str, _Episode]:
        # Causes that are over may still occupy entries.
        if (key, event) not in self._episodes and len(self._episodes) >= KEYS_MAX:
            self.flush()
            if len(self._episodes) >= KEYS_MAX:
                key, event = OTHER, OTHER
        return self._episodes.setdefault((key, event), {})

    def _is_due(self, episode: _Episode) -> bool:
        return self._now() - episode.logged_at_s >= episode.repeat_s

    def _repeat(self, event: str, episode: _Episode) -> None:
        suppressed = {"suppressed": episode.suppressed_count} if episode.suppressed_count else {}
        # The fields of the latest occurrence: the first one may be out of date after minutes.
        _write(episode.level, event, {**episode.fields, **suppressed})
        episode.logged_at_s, episode.suppressed_count = self._now(), 0
        episode.repeat_s = min(episode.repeat_s * REPEAT_GROWTH, REPEAT_S_MAX)


def _log_end(event: str, episode: _Episode) -> None:
    """Log that a cause is over, unless it occurred once or within a moment."""
    lasted_s = episode.last_at_s - episode.begun_at_s
    if lasted_s >= REPEAT_S:
        causes = {name: episode.fields[name] for name in CAUSE_FIELDS if name in episode.fields}
        over = {"count": episode.count, "lasted_s": round(lasted_s), "quiet_s": QUIET_S}
        _write("info", f"over: {event}", {**causes, **over})


def _write(level: str, event: str, fields: Mapping[str, object]) -> None:
    getattr(structlog.get_logger(), level)(event, **fields)


def _cause_of(fields: Mapping[str, object]) -> str:
    """Return the text that identifies a cause, without measured values, which differ from line to line."""
    known = _without_exception(fields)
    texts = [str(known[name])[:CAUSE_CHARS_MAX] for name in CAUSE_FIELDS if name in known]
    return without_measures("\n".join(texts))


def without_measures(text: str) -> str:
    """Return a text without measured values, so that the texts of one cause are equal."""
    return _MEASURED.sub("", text)


def _without_exception(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields with the text of an exception in the exception's place."""
    error = fields.get("exc_info")
    if error is None:
        return fields
    kept = {name: value for name, value in fields.items() if name != "exc_info"}
    return {**kept, "error": _error_text(error) if isinstance(error, BaseException) else str(error)}


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


limited = RateLimited()
"""The rate limiter of this process, for events that a sender, a disk or a store can cause repeatedly."""


class _Tolerant(structlog.WriteLogger):
    """Logger that drops a line if it cannot be written."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    info = warning = error = critical = msg


class _Named:
    """Processor that adds the process name."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["process"] = self._process
        return event


def _exception_as_text(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its text and the place that raised it, for standard library loggers too."""
    info = event.pop("exc_info", None)
    error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["error"], event["raised_at"] = _error_text(error), raised_at(error)
    return event


def raised_at(error: BaseException) -> list[str]:
    """Return the last frames of the traceback, without any values."""
    # The last frames are those closest to the error.
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _harmless(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    ordered = {**{key: event[key] for key in _FIRST if key in event}, **event}
    return {harmless_text(str(key)): _shown(str(key), value, 0) for key, value in ordered.items()}


def _shown(key: str, value: object, depth: int) -> object:
    """Return a value that is safe to print. The depth is limited; only our own fields are nested."""
    # By the name of the field, in case that a secret ever reaches a log call.
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
    """Handler that forwards records of the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        log = getattr(structlog.get_logger(), level)
        log(record.getMessage(), logger=record.name, exc_info=record.exc_info)
