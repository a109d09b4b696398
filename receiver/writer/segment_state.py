"""States of a segment on its way into the store, the observations in them, and the resulting actions.

A unit is what one INSERT sends: a segment, or a piece of a split segment. `transitions.py` holds the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from receiver.engine.error_codes import Fault
from receiver.model import SegmentId
from receiver.writer.outcome import Comparison

DAYS_MAX = 30
"""Maximum number of partitions per statement. Each takes about 20 ms, and other segments wait meanwhile.
ClickHouse refuses more than 100 by default."""


class SplitCause(StrEnum):
    """Why a unit is split."""

    MISSING = "whole days are missing"
    DAYS = "too many days"
    SIZE = "too large"
    REFUSED = "refused rows"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Reason to suspect the data of a unit, from the store's refusals."""

    cause: SplitCause
    text: str = ""
    code: int | None = None
    """The store's error message and code."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a unit from its content and from earlier attempts."""

    unit: SegmentId
    in_doubt: bool = False
    """An INSERT may have been applied without a response, so the companion table may have a gap."""
    rows: int = 0
    may_split: bool = True
    """Whether the segment has not reached its limit of splits."""
    refused_code: int | None = None
    """Error code that caused the split of its segment. The same code again is sufficient evidence."""
    inserts_ok: int = 0
    """Number of INSERTs that returned OK. Each changes the deduplication token of the next INSERT."""
    inconsistent_counts: int = 0
    failures: int = 0
    """Failed statements since the last successful one."""
    running_since_s: float | None = None
    """Monotonic time since which the writer knows of a running statement whose response was lost."""
    refusals: int = 0
    """Number of times that the store accepted a probe row but not this unit."""


@dataclass(frozen=True, slots=True)
class Found:
    """The unit is listed in the journal; its content was not read yet."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """The unit shares a delivery with another segment whose INSERT has no known outcome yet."""

    evidence: Evidence
    other: SegmentId


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """The content is final on disk, and none of it is in the store."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Some rows may be in the store, so they are counted before anything is sent again."""

    evidence: Evidence
    suspicion: Suspicion | None = None


@dataclass(frozen=True, slots=True)
class Suspected:
    """A statement failed. A probe row shows whether the store or this unit is at fault."""

    evidence: Evidence
    failure: Failed
    resume: ActiveState
    """The state to continue in."""
    is_insert: bool
    """Whether the failed statement was an INSERT, so that the data may be at fault."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Every row that must be in the store was counted there."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Splitting:
    """The rows that are not stored become pieces, each with its own identity."""

    evidence: Evidence
    suspicion: Suspicion
    days: Sequence[str] = ()
    """Days whose rows are not stored; empty for all days."""


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The rows that are not stored become a dead letter."""

    evidence: Evidence
    cause: str
    text: str
    days: Sequence[str] = ()
    """Days whose rows become dead; empty for all rows that are not stored."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The stored rows are made complete and durable: refill the companion table, then sync the store."""

    evidence: Evidence
    next_state: Counted | Splitting | DeadLettered
    refill: tuple[str, ...] = ()
    """Days whose traces must be written into the companion table again."""
    days_per_statement: int = DAYS_MAX


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result is on disk: in the ledger, or for a piece in the plan of its segment."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Finished:
    """The unit was deleted, or replaced by the plan of its segment."""

    evidence: Evidence


ActiveState = Found | Deduplicated | Doubtful | Closing | Splitting | DeadLettered | Counted | Recorded
"""States with an action that can fail and be repeated."""
SegmentState = ActiveState | WaitingFor | Suspected | Finished


@dataclass(frozen=True, slots=True)
class Resumed:
    """A new turn begins."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The content was read and made final."""

    rows: int
    in_doubt: bool
    may_split: bool = True
    refused_code: int | None = None


@dataclass(frozen=True, slots=True)
class SharesDelivery:
    """Another segment has reserved a delivery of this segment."""

    other: SegmentId


@dataclass(frozen=True, slots=True)
class Done:
    """The action succeeded."""


@dataclass(frozen=True, slots=True)
class RowsCounted:
    """The stored rows were counted and compared with the content."""

    comparison: Comparison
    days_stored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StillRunning:
    """A statement whose response was lost is still running, so a count would not be final."""

    since_s: float
    """Monotonic time since which the writer knows of it."""
    waited_s: float


@dataclass(frozen=True, slots=True)
class Unusable:
    """The rows that are not stored cannot be read or separated from the stored ones."""

    cause: str
    text: str
    days_stored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CannotSplit:
    """The unit cannot be split into smaller pieces."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A statement failed; its outcome is unknown."""

    fault: Fault
    code: int | None
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """The store accepted or refused a probe row."""

    is_accepted: bool


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """A local file could not be read, written or deleted."""

    text: str


Observation = (
    Resumed
    | Opened
    | SharesDelivery
    | Done
    | RowsCounted
    | StillRunning
    | Unusable
    | CannotSplit
    | Failed
    | ProbeAnswered
    | DiskFailed
)


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for the store, keeping the order of the segments."""

    is_slow: bool


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Let other segments go first."""

    is_soon: bool = False
    """Whether the next turn may follow at once, instead of after a delay that grows with each failure."""
    stall: str = ""
    """Reason, for the operator, that the segment makes no progress; empty if it does."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A failure that an operator must look into."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """The next state, and the action of the loop that runs a turn."""

    state: SegmentState
    action: Pause | EndTurn | None = None
    """`None`: do what the state calls for."""
    alarm: Alarm | None = None
