"""Everything that can go wrong, as one tree with two verdicts, and the one table of answers.

ReceiverError
├── Refused                the sender must change the request before trying again
│   ├── MalformedBody          ├── NoSuchPath
│   ├── Unauthenticated        ├── MethodNotAllowed
│   ├── NotAllowed             ├── BodyTooLarge
│   └── UnsupportedMedia
├── Unavailable            the sender should send the same bytes again, later
│   ├── QuotaSpent             ├── DiskTrouble
│   ├── JournalFull            ├── ShuttingDown
│   ├── MemoryBudgetSpent      ├── DeadlinePassed
│   ├── Overloaded
│   ├── CoreCrashed            └── StoreTrouble (never seen by a sender)
└── OperatorError          a setting, a file or a command is wrong; never seen by a sender
    └── CommandFailed          the command is right and cannot be done, or found something wrong
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple


class ReceiverError(Exception):
    """Anything this program raises on purpose. The text is ours: no byte of a body, no secret."""


class Refused(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The sender must change the request before trying again."""

    def __init__(
        self, reason: str, *, field: str = "body", log_fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.field = field
        self.log_fields = log_fields or {}
        """What only our log says, beside or instead of the reason: which credential, which path."""


class MalformedBody(Refused):
    """Not one well-formed document of the declared type, or no valid span in it."""


class Unauthenticated(Refused):
    """No credentials, or unknown ones."""


class NotAllowed(Refused):
    """Known credentials that do not cover this, or a signature that does not match."""


class NoSuchPath(Refused):
    """Nothing listens at this path."""


class MethodNotAllowed(Refused):
    """The path takes POST only."""


class BodyTooLarge(Refused):
    """Declared or real size, before or after unpacking, is over the limit."""


class UnsupportedMedia(Refused):
    """A content type, charset or encoding that is not read here."""


class Unavailable(ReceiverError):  # noqa: N818 - a verdict, not an accident
    """The sender should send the same bytes again, later."""


class QuotaSpent(Unavailable):
    """The drain's quota is spent for now."""


class JournalFull(Unavailable):
    """The journal is at its ceiling, or the disk at its floor."""


class DiskTrouble(Unavailable):
    """The journal's disk refused a write or a sync."""


class MemoryBudgetSpent(Unavailable):
    """Too many bytes of bodies are in flight."""


class Overloaded(Unavailable):
    """More is offered than can be promised in time."""


class ShuttingDown(Unavailable):
    """The process takes no more work."""


class DeadlinePassed(Unavailable):
    """The promise could not be made in time; it may still come true."""


class CoreCrashed(Unavailable):
    """The core panicked on this body. It is kept aside for a human."""


class StoreTrouble(Unavailable):
    """The store refused, failed or did not answer. `code` is ClickHouse's; `None`: it gave none.

    `status`: of an answer that was none of ClickHouse's, as a proxy gives it. `place`: the server's.
    `cause`: why there was no answer, in words of ours. `advice`: which setting to look at, and what the
    server said where that holds no value of a row.
    """

    def __init__(  # noqa: PLR0913 - each is a part of one verdict
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
        """The trouble as it may be logged: ClickHouse's texts can hold values of rows, this cannot."""
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
    """A setting, a file or a command is wrong. Never seen by a sender."""

    exit_code: ClassVar[int] = 2
    """Of the command that ends with it."""


class CommandFailed(OperatorError):  # noqa: N818 - an answer, as its base
    """What a correct command asks for is not there, not as it should be, or cannot be done now."""

    exit_code: ClassVar[int] = 1


def place_and_reason(reason: OSError) -> str:
    """What the system refused, and where, if it says so."""
    why = reason.strerror or type(reason).__name__
    return f"'{reason.filename}': {why}" if reason.filename else why


class Answer(NamedTuple):
    """How a verdict is told over HTTP."""

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
    QuotaSpent: Answer(429, 8),
    JournalFull: Answer(503, 14),
    DiskTrouble: Answer(503, 14),
    MemoryBudgetSpent: Answer(503, 14),
    Overloaded: Answer(503, 14),
    ShuttingDown: Answer(503, 14),
    DeadlinePassed: Answer(503, 14),
    CoreCrashed: Answer(503, 14),
    StoreTrouble: Answer(503, 14),
}
"""One enum, one table, one place. `OperatorError` is never answered to a sender."""

RETRY_AFTER_S = 2
"""SDKs give up when it exceeds what is left of their 10 s."""
