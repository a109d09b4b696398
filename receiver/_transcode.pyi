"""The compiled core, as Python sees it. Proved against the module by `mypy.stubtest`."""

from collections.abc import Callable, Sequence
from typing import Final, final

__all__ = [
    "BUILD_PROFILE",
    "COLUMNS",
    "SCHEMAS",
    "VERSION",
    "Commit",
    "CoreError",
    "DigestTags",
    "Digests",
    "ExplainedTrace",
    "Outcome",
    "Policy",
    "Record",
    "Scan",
    "commit",
    "day_runs",
    "explain_sampling",
    "footer",
    "footer_for",
    "rewrite",
    "scan",
]

BUILD_PROFILE: Final[str]
"""`release` or `debug`: a debug core in production is a silent tenfold slowdown."""
VERSION: Final[str]
COLUMNS: Final[list[tuple[str, str]]]
"""Name and table type of every stored column, in order."""
SCHEMAS: Final[list[tuple[str, str]]]
"""File name and text of every numbered SQL statement, in order."""

class CoreError(ValueError):
    """Arguments that make no sense, or a segment that is not what it says."""

@final
class Policy:
    """What is kept, cut, sampled and resolved: built once from the settings."""

    def __new__(
        cls,
        *,
        project: Sequence[tuple[str, str]],
        deployment: Sequence[tuple[str, str]],
        retention_days: int,
        late_margin_days: int,
        ahead_s_max: int,
        sampling_mode: str,
        sampling_rate: float,
        sampling_seed: int,
        sampling_rules: Sequence[tuple[dict[str, str], float]],
        codec: str,
        limits: dict[str, int],
    ) -> Policy: ...

@final
class Outcome:
    """What became of one delivery."""

    @property
    def verdict(self) -> str:
        """`accepted`, `malformed`, `too_large`, `crashed`; `postponed`: its group had no room for it."""
    @property
    def is_plain(self) -> bool:
        """Accepted in full, and nothing to tell its sender."""
    @property
    def received(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def sampled_out(self) -> int: ...
    @property
    def rejected(self) -> int: ...
    @property
    def unresolved(self) -> int:
        """Stored spans for which no project was found."""
    @property
    def message(self) -> str:
        """For `partial_success` (empty: nothing to say), or why the delivery is refused."""
    @property
    def field(self) -> str:
        """The field at fault when refused."""
    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Warnings and rejections by their stable key, with their counts."""

@final
class Commit:
    """One record, ready to append, and what became of each delivery."""

    @property
    def record(self) -> bytes:
        """Empty if there is nothing to journal."""
    @property
    def rows(self) -> int: ...
    @property
    def outcomes(self) -> list[Outcome]: ...
    @property
    def spans(self) -> list[tuple[str, int, int, int, int, int]]:
        """Of what was accepted, by drain: received, stored, sampled out, rejected, unresolved."""
    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Warnings and rejections of what was accepted, by their stable key."""

def commit(
    policy: Policy,
    deliveries: Sequence[tuple[str, bytes, str, tuple[str, ...], int, bool, int]],
    epoch: int,
    seq: int,
    digest_key: bytes,
) -> Commit:
    """Transcode (drain, body, kind, encodings, received_at_ns, strict, body_bytes_max) into one record.

    The first is always taken; once the group has come to 128 MiB, the others are postponed.
    `digest_key`: 32 bytes.
    """

def footer(segment: bytes) -> bytes:
    """The footer that seals these records. Raises `CoreError` when one of them is not whole."""

def footer_for(checksums: bytes, rows: int, bytes_before: int) -> bytes:
    """The footer that seals records of which only this is known: their checksums, 8 bytes each, in order."""

@final
class Record:
    """One record of a segment."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def answers(self) -> bytes:
        """What the record answers for, as msgpack."""
    @property
    def received_ms(self) -> tuple[int, int]:
        """Earliest and latest ReceivedAt of its rows, milliseconds since 1970."""

@final
class Scan:
    """A segment, read: whole records only."""

    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def records(self) -> list[Record]: ...
    @property
    def good_bytes(self) -> int:
        """Where the last whole record ends: a torn tail is cut here."""
    @property
    def sealed(self) -> bool:
        """A whole footer closes the segment."""
    @property
    def damage(self) -> list[tuple[int, int, str]]:
        """Offset, length and description of every stretch that was promised and cannot be read."""

def scan(segment: bytes) -> Scan:
    """Read a segment: a torn tail is an ordinary answer, rot in a promised record is damage."""

def rewrite(
    segment: bytes,
    keep: Sequence[tuple[int, int]],
    codec: str,
    block_rows_max: int,
    anew: tuple[int, int, bool] | None = None,
) -> bytes:
    """Merge the blocks of a segment, keeping only these row ranges, into a new sealed segment.

    The same one, or that of `anew`: epoch, seq, and whether it answers for the deliveries.
    """

def day_runs(segment: bytes) -> list[tuple[int, int, int]]:
    """First row, row after the last, day since 1970 (UTC): rows that follow each other and share a day."""

@final
class ExplainedTrace:
    """A sampling decision about one trace, and what it rests on. Thresholds are spelled as in tracestate."""

    @property
    def keep(self) -> bool: ...
    @property
    def weight(self) -> float | None:
        """How many spans one that is kept stands for. None: unknown, or not kept."""
    @property
    def threshold(self) -> str | None:
        """None: unknown, or no randomness reaches it."""
    @property
    def reason(self) -> str:
        """As the column `SampleReason`."""
    @property
    def ignored(self) -> list[str]:
        """Fields of the trace state that are malformed, and counted as absent."""
    @property
    def rule(self) -> int | None:
        """The rule that holds for the span, counted from zero."""
    @property
    def randomness(self) -> str: ...
    @property
    def randomness_from(self) -> str: ...
    @property
    def arriving_threshold(self) -> str | None: ...

def explain_sampling(
    policy: Policy,
    trace_id: str,
    *,
    trace_state: str,
    project: str,
    environment: str,
    service: str,
    drain: str,
) -> ExplainedTrace:
    """Explain what this policy decides about a span of this trace. Raises `CoreError` if it is malformed."""

@final
class Digests:
    """A set of digests that grows, 16 bytes each. Given and asked for one behind the other."""

    def __new__(cls, salt: bytes) -> Digests: ...
    def __len__(self) -> int: ...
    def add(self, digests: bytes) -> None:
        """Put these in; twice is once."""
    def known(self, digests: bytes) -> list[int]:
        """Which of these are in it, by number."""
    def slots(self) -> bytes:
        """All of it, as it lies in a file: 16 bytes a slot."""

@final
class DigestTags:
    """What is kept in memory of such a set that lies in a file: a byte a slot."""

    def __new__(cls, salt: bytes, *, mixed_once: bool) -> DigestTags:
        """`mixed_once`: digests lie where the first version put them."""
    def extend(self, slots: bytes) -> None:
        """Note the next slots, as `Digests.slots` gave them."""
    def known(self, digests: bytes, lies_at: Callable[[int, bytes], bool]) -> list[int]:
        """Which of these are in it, by number. `lies_at` tells whether a slot holds these bytes."""
