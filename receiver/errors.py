"""Exception hierarchy of the receiver, and the table of HTTP answers to senders.

ReceiverError
├── Refused                the sender must change the request before trying again
│   ├── MalformedBody          ├── NoSuchPath
│   ├── Unauthenticated        ├── MethodNotAllowed
│   ├── NotAllowed             ├── BodyTooLarge
│   ├── UnsupportedMedia
│   ├── NoSuchDeployment (an operator named a deployment without a span)
│   ├── InvalidFilter (an operator's query)
│   ├── InvalidStatement (an operator's SQL)
│   └── LimitExceeded (by an operator's query)
├── Unavailable            the sender should send the same bytes again, later
│   ├── JournalFull            ├── DiskTrouble
│   ├── MemoryBudgetSpent      ├── ShuttingDown
│   ├── Overloaded             ├── DeadlinePassed
│   ├── CoreCrashed            ├── InboxFull (of webhooks)
│   ├── CallerBusy, QueueFull (by an operator's queries)
│   └── StoreTrouble (never seen by a sender)
├── OperatorError          a setting, a file or a command is wrong; never seen by a sender
│   └── CommandFailed          the command is correct but failed, or it found a problem
├── NoSuchTrace            an operator named a trace that is not stored
├── NotConfigured          an operator's request is for a feature that is off
├── NoSuchView             an operator named a view that is not saved
├── NoSuchDeadLetter       an operator named a dead letter that does not exist
├── NoSuchProject          an operator named a project that was not removed
├── DeadLetterConflict     an operator's action on a dead letter is impossible now
├── InstallationRefused    the link that a browser followed cannot complete an installation
├── InstallationFailed     the platform, or the disk, did not complete an installation
└── StaleSegment           a race between intake and journal, resolved by the intake; never an answer

An exception class outside this module is private to its package. `transcode.CoreError` is the core's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple


class ReceiverError(Exception):
    """Base of all errors that the program raises itself. The text holds no secret and no byte of a body."""


class Refused(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The sender must change the request before trying again."""

    def __init__(
        self, reason: str, *, field: str = "body", log_fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.field = field
        self.log_fields = log_fields or {}
        """Fields for the log only, never for the answer: which credential, which path."""


class MalformedBody(Refused):
    """The body is not a well-formed document of the declared type, or holds no valid span."""


class NoSuchDeployment(Refused):
    """An operator named a deployment without a span in the time range."""


class InvalidFilter(Refused):
    """The filter of a query is not valid. `column` counts characters from 1; `path` is a place in JSON."""

    def __init__(self, problem: str, *, column: int = 0, path: str = "", parameter: str = "filter") -> None:
        self.place = path or f"column {column}"
        super().__init__(f"{parameter}, {self.place}: {problem}", field=parameter)
        self.problem = problem
        self.column = column
        self._path = path

    def named(self, parameter: str) -> InvalidFilter:
        """Return the same error about a filter that was sent in another parameter."""
        return InvalidFilter(self.problem, column=self.column, path=self._path, parameter=parameter)


class InvalidStatement(Refused):
    """A SQL statement that is not allowed, or that the store cannot run. The text may quote its names."""


class LimitExceeded(Refused):
    """A query needs more than a limit allows; `field` names the limit. Another try would fail as well."""


class Unauthenticated(Refused):
    """The request has no credentials, or unknown credentials."""


class NotAllowed(Refused):
    """The credentials are known but not valid for this path, or the signature does not match."""


class NoSuchPath(Refused):
    """No drain is configured for this path."""


class MethodNotAllowed(Refused):
    """The path accepts POST only."""


class BodyTooLarge(Refused):
    """The declared or actual size, before or after decompression, is over the limit."""


class UnsupportedMedia(Refused):
    """The content type, charset or content encoding is not supported."""


class Unavailable(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The sender should send the same bytes again, later."""


class JournalFull(Unavailable):
    """The journal is at its maximum size, or the free disk space at its minimum."""


class DiskTrouble(Unavailable):
    """The journal's disk failed a write or a sync."""


class MemoryBudgetSpent(Unavailable):
    """The bodies in flight use the whole memory budget."""


class Overloaded(Unavailable):
    """More deliveries are waiting than can be acknowledged in time."""


class ShuttingDown(Unavailable):
    """The process is stopping and accepts no more deliveries."""


class DeadlinePassed(Unavailable):
    """The delivery was not acknowledged before the deadline; it may still be stored."""


class CoreCrashed(Unavailable):
    """The core panicked on this body. The body is kept in the quarantine for inspection."""


class InboxFull(Unavailable):
    """As many webhooks are stored and not yet applied as the settings allow."""


class CallerBusy(Unavailable):
    """The caller has too many waiting queries, or an explanation that runs already."""


class QueueFull(Unavailable):
    """Too many queries or explanations of all callers wait or run, or this query has waited too long."""


class StoreTrouble(Unavailable):
    """The store refused the request, failed, or did not answer.

    `code` is ClickHouse's error code, `None` if the answer had none. `status` is the HTTP status of an answer
    that is not ClickHouse's, for example a proxy's. `place` is the server's address. `cause` is why there was
    no answer, in our words. `advice` names the setting to check, and quotes the server where that reveals no
    value of a row.
    """

    def __init__(  # noqa: PLR0913 - each is a part of the same error
        self,
        reason: str,
        *,
        code: int | None = None,
        name: str = "",
        status: int | None = None,
        place: str = "",
        cause: str = "",
        advice: str = "",
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.name = name
        self.status = status
        self.place = place
        self.cause = cause
        self.advice = advice

    @property
    def label(self) -> str:
        """Text that is safe to log. Unlike ClickHouse's messages, it cannot contain values of rows."""
        return f"{self._outcome}: {self.advice}" if self.advice else self._outcome

    @property
    def _outcome(self) -> str:
        if self.code is not None:
            return f"{self.name or 'ERROR'} ({self.code})"
        at = f" at {self.place}" if self.place else ""
        if self.status or self.name:
            return f"HTTP {self.status}{at}" if self.status else f"{self.name}{at}"
        return f"no answer{at}: {self.cause}" if self.cause else f"no answer{at}"


class OperatorError(ReceiverError):
    """A setting, a file or a command is wrong. Senders never see it."""

    exit_code: ClassVar[int] = 2
    """Exit code of a command that fails with this error."""


class CommandFailed(OperatorError):  # noqa: N818 - a verdict, not an accident
    """A correct command that failed: its object is missing or damaged, or the action is impossible now."""

    exit_code: ClassVar[int] = 1


class NoSuchTrace(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """No span of the trace is stored, or none that the caller may see."""


class NotConfigured(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The settings do not switch the feature on that a request is for."""


class NoSuchView(ReceiverError):  # noqa: N818 - a verdict
    """An operator named a view that is not saved."""


class NoSuchDeadLetter(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """No dead letter has this id."""


class NoSuchProject(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """No project with this id was removed on the platform."""


class DeadLetterConflict(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The dead letter cannot be replayed or deleted now. It is kept."""


class InstallationRefused(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The link that completes an installation is forged, expired, used or of another user."""


class InstallationFailed(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The platform, or the disk, did not complete an installation. The text says how to go on."""


class StaleSegment(ReceiverError):  # noqa: N818 - an expected race, not an accident
    """The segment was closed after it was chosen. Nothing was written: choose and transcode again."""


def place_and_reason(error: OSError) -> str:
    """Return the system's error text, preceded by the path if the error has one."""
    why = error.strerror or type(error).__name__
    return f"'{error.filename}': {why}" if error.filename else why


class Answer(NamedTuple):
    """HTTP status and gRPC code of an error."""

    status: int
    grpc_code: int


ANSWER_OF: dict[type[ReceiverError], Answer] = {
    MalformedBody: Answer(400, 3),
    Unauthenticated: Answer(401, 16),
    NotAllowed: Answer(403, 7),
    NoSuchPath: Answer(404, 5),
    MethodNotAllowed: Answer(405, 12),
    BodyTooLarge: Answer(413, 3),
    UnsupportedMedia: Answer(415, 3),
    # OTLP clients retry 429, 502, 503 and 504 only, so each `Unavailable` has one of these.
    JournalFull: Answer(503, 14),
    DiskTrouble: Answer(503, 14),
    MemoryBudgetSpent: Answer(503, 14),
    Overloaded: Answer(503, 14),
    ShuttingDown: Answer(503, 14),
    DeadlinePassed: Answer(503, 14),
    CoreCrashed: Answer(503, 14),
    InboxFull: Answer(503, 14),
    StoreTrouble: Answer(503, 14),
}
"""Answer to senders by type of error. Errors that senders never get are not listed."""

RETRY_AFTER_S = 2
"""Value of Retry-After. Short, because SDKs give up if it exceeds the rest of their 10 s timeout."""
