"""Requests and connections that were not accepted: the newest of them, and their number by hour and reason.

    intake  --Report-->  supervisor: `RefusalBook`  --`ShowRefusals`-->  store process: `refused.report`

Invariant: memory is limited, whatever senders send: equal refusals are one entry with a count, and refusals
beyond the limits share one entry for each drain and reason, so that the counts stay exact.
Never: a secret, a byte of a body, or the query of a path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from receiver.logs import without_measures
from receiver.printable import harmless_text

ENTRIES_MAX: Final = 64
HOURS_MAX: Final = 24
HOUR_ROWS_MAX: Final = 1_000
"""Maximum number of counts by hour; the oldest are deleted first."""
TEXT_CHARS_MAX: Final = 512
PATH_CHARS_MAX: Final = 100
ERROR_CHARS_MAX: Final = 300
OTHERS: Final = "(others)"
HOUR_S: Final = 3_600

CREDENTIALS: Final = "Let the sender send exactly the token and the signature that this drain requires."
OVERLOADED: Final = "Raise `intakes`, or let the sender send less; it sends the same bytes again."
REMEDIES: Final = {
    "unauthenticated": CREDENTIALS,
    "not_allowed": "Give sender and receiver the same secret and algorithm; if they have, a proxy changes "
    "the body or the header: let it pass both unchanged.",
    "malformed_body": "Let the sender use OTLP traces over HTTP, as JSON or protobuf; a proxy must not "
    "change the body.",
    "unsupported_media": "Let the sender use the content type application/json or application/x-protobuf.",
    "body_too_large": "Let the sender use smaller batches, or raise body_bytes_max of the drain.",
    "no_such_path": "Correct the URL that the sender uses: its path must be that of a drain.",
    "method_not_allowed": "Let the sender use POST; a redirect turns a POST into a GET.",
    "journal_full": "See Journal and backlog: the store does not keep up, or the disk is full.",
    "disk_trouble": "Look at the disk of the data directory: a write or a sync failed.",
    **dict.fromkeys(("overloaded", "overloaded_connection"), OVERLOADED),
    "memory_budget_spent": "Raise limits.inflight_bytes_max, or let the sender use smaller batches.",
    "deadline_passed": "Look at the disk of the data directory, which answers slowly.",
    "connection": "Raise limits.connections_max, or let the sender reuse its connections.",
    "sender_gone": "The sender or a proxy ended the request early: raise its time-out.",
    "body_too_slow": "Look for packet loss or a slow proxy between sender and receiver.",
}
"""What an operator does about a reason. A reason that is not listed needs the log."""
SEE_LOG: Final = "See the receiver's log."


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Equal refusals: what was refused, why, and how often."""

    drain: str = ""
    """Empty: the path belongs to no drain, or no path was read."""
    peer: str = ""
    """Address of the connection's other end; a proxy's, if one is in between."""
    path: str = ""
    status: int = 0
    """Status of the answer; 0: the connection was closed without an answer."""
    reason: str
    error: str = ""
    remedy: str = ""
    first_s: float = 0.0
    last_s: float = 0.0
    count: int = 1

    @property
    def cause(self) -> tuple[str, str, str, int, str, str]:
        """Return what equal refusals have in common."""
        return self.drain, self.peer, self.path, self.status, self.reason, without_measures(self.error)


class HourCount(msgspec.Struct, frozen=True):
    """Number of refusals of one drain for one reason in one hour."""

    hour_s: int
    drain: str
    reason: str
    status: int
    count: int


class RefusalReport(msgspec.Struct, frozen=True):
    """The newest refusals, newest first, and counts by hour, latest hour first, since the start."""

    newest: tuple[Refusal, ...] = ()
    hours: tuple[HourCount, ...] = ()


class Folded:
    """Refusals of which equal ones are one entry."""

    def __init__(self) -> None:
        self._entries: dict[tuple[object, ...], Refusal] = {}

    def add(self, new: Refusal) -> None:
        old = self._entries.pop(new.cause, None)
        if old is not None:
            new = msgspec.structs.replace(new, first_s=old.first_s, count=old.count + new.count)
        # At the end: the dictionary is in the order of the latest occurrence.
        self._entries[new.cause] = new

    def keep_newest(self, entries_max: int) -> None:
        """Delete the entries that occurred least recently; those without a drain have half of the room."""
        while len(self._entries) > entries_max:
            without_drain = [cause for cause, entry in self._entries.items() if not entry.drain]
            has_too_many = len(without_drain) > entries_max // 2
            del self._entries[without_drain[0] if has_too_many else next(iter(self._entries))]

    def newest_first(self) -> tuple[Refusal, ...]:
        return tuple(reversed(self._entries.values()))


class RefusalNotes:
    """The refusals of this process since its last report. In the store process: those of all processes."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._new: dict[tuple[str, int, str, str, str, str, str], list[float]] = {}
        """First and last time and number, by the arguments of `note`."""
        self.report = RefusalReport()
        """What the supervisor sent last. Only the store process gets it."""

    def note(  # noqa: PLR0913 - the parts of a line of the log
        self,
        reason: str,
        *,
        status: int = 0,
        drain: str = "",
        peer: str = "",
        path: str = "",
        error: str = "",
        remedy: str = "",
    ) -> None:
        """Note a refusal. Texts are checked in `take`, because overload must be refused cheaply."""
        key = (reason, status, drain, peer, path[:TEXT_CHARS_MAX], error[:TEXT_CHARS_MAX], remedy)
        # Anyone can send requests to unknown paths, so they must not take the room of the drains' refusals.
        entries_max = ENTRIES_MAX if drain else ENTRIES_MAX // 2
        if key not in self._new and len(self._new) >= entries_max:
            key = (reason, status, drain, OTHERS, "", "", remedy)
        now_s = self._now_s()
        times = self._new.setdefault(key, [now_s, now_s, 0])
        times[1] = now_s
        times[2] += 1

    def take(self) -> tuple[Refusal, ...]:
        """Return the refusals since the last call, oldest first. Paths have no query."""
        new, self._new = self._new, {}
        folded = Folded()
        for (reason, status, drain, peer, path, error, remedy), (first_s, last_s, count) in new.items():
            folded.add(
                Refusal(
                    drain=drain,
                    peer=peer,
                    path=_cut(path.partition("?")[0], PATH_CHARS_MAX),
                    status=status,
                    reason=reason,
                    error=_cut(error, ERROR_CHARS_MAX),
                    remedy=remedy or REMEDIES.get(reason, SEE_LOG),
                    first_s=first_s,
                    last_s=last_s,
                    count=int(count),
                )
            )
        return folded.newest_first()[::-1]


def _cut(text: str, chars_max: int) -> str:
    return harmless_text(text if len(text) <= chars_max else f"{text[:chars_max]}…")


class RefusalBook:
    def __init__(self) -> None:
        self._newest = Folded()
        self._hours: dict[tuple[int, str, str, int], int] = {}
        """Number by hour, drain, reason and status."""
        self.version = 0
        """Changes with every refusal."""

    def add(self, refusals: Iterable[Refusal]) -> None:
        """Add what a process reports."""
        for refusal in refusals:
            self.version += 1
            self._newest.add(refusal)
            self._newest.keep_newest(ENTRIES_MAX)
            hour_s = int(refusal.last_s) // HOUR_S * HOUR_S
            key = (hour_s, refusal.drain, refusal.reason, refusal.status)
            self._hours[key] = self._hours.get(key, 0) + refusal.count
            self._tidy(hour_s)

    def _tidy(self, hour_s: int) -> None:
        oldest_s = min(self._hours)[0]
        if hour_s - oldest_s >= HOURS_MAX * HOUR_S or len(self._hours) > HOUR_ROWS_MAX:
            self._hours = {key: count for key, count in self._hours.items() if key[0] > oldest_s}

    def report(self) -> RefusalReport:
        """Return everything that is kept."""
        hours = sorted(self._hours.items(), key=lambda item: (-item[0][0], -item[1]))
        return RefusalReport(self._newest.newest_first(), tuple(HourCount(*key, n) for key, n in hours))


refused = RefusalNotes()
"""The refusals of this process."""
