"""Type stub of the compiled core. `mypy.stubtest` compares it with the module."""

from collections.abc import Callable, Sequence
from typing import Any, Final, final

__all__ = [
    "BUILD_PROFILE",
    "COLUMNS",
    "FOOTER_BYTES",
    "HEAD_BYTES",
    "SCHEMAS",
    "VERSION",
    "Commit",
    "CoreError",
    "DigestTags",
    "Digests",
    "ExplainedTrace",
    "FastBatch",
    "FastConnection",
    "FastPath",
    "FastSender",
    "KnownHead",
    "Outcome",
    "PatternSet",
    "Policy",
    "Record",
    "Scan",
    "commit",
    "day_runs",
    "explain_sampling",
    "footer",
    "footer_counts",
    "footer_for",
    "is_newer",
    "record_head",
    "rewrite",
    "scan",
]

BUILD_PROFILE: Final[str]
"""`release` or `debug`: a debug build in production is ten times slower."""
VERSION: Final[str]
COLUMNS: Final[list[tuple[str, str]]]
"""Name and table type of every stored column, in order."""
FOOTER_BYTES: Final[int]
"""Length of the footer at the end of a sealed segment."""
HEAD_BYTES: Final[int]
"""Length of a record before its list of deliveries."""
SCHEMAS: Final[list[tuple[str, str]]]
"""File name and text of every numbered SQL statement, in order."""

class CoreError(ValueError):
    """Invalid arguments, or a segment whose content contradicts its headers."""

@final
class Policy:
    """Rules for limits, sampling and project resolution, built once from the settings."""

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
    """Outcome of one delivery."""

    @property
    def verdict(self) -> str:
        """`accepted`, `malformed`, `too_large`, `crashed`, or `postponed` if its group was full."""
    @property
    def is_plain(self) -> bool:
        """Whether it was accepted in full and its sender needs no message."""
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
        """Stored spans without a project."""
    @property
    def message(self) -> str:
        """Text for `partial_success` (empty: nothing to report), or the reason of a refusal."""
    @property
    def field(self) -> str:
        """The field that caused a refusal."""
    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Warnings and rejections by their stable key, with their counts."""

@final
class Commit:
    """One record, ready to append, and the outcome of each delivery."""

    @property
    def record(self) -> bytes:
        """Bytes to append; empty if there is nothing to journal."""
    @property
    def rows(self) -> int: ...
    @property
    def outcomes(self) -> list[Outcome]: ...
    @property
    def spans(self) -> list[tuple[str, int, int, int, int, int]]:
        """Accepted deliveries' spans by drain: received, stored, sampled out, rejected, unresolved."""
    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Warnings and rejections of accepted deliveries, by their stable key."""

def commit(
    policy: Policy,
    members: Sequence[tuple[str, bytes, str, tuple[str, ...], int, bool, int] | FastBatch],
    epoch: int,
    seq: int,
    digest_key: bytes,
) -> Commit:
    """Transcode (drain, body, kind, encodings, received_at_ns, strict, body_bytes_max) into one record.

    A member may also be a batch, whose deliveries have an outcome each.
    The first delivery is always processed; once the group reaches 128 MiB, the remaining ones are postponed.
    `digest_key`: 32 bytes.
    """

@final
class KnownHead:
    """A request head that was accepted before, split around the digits of its Content-Length."""

    def __new__(cls, before: bytes, after: bytes) -> KnownHead: ...
    def match(self, data: bytes) -> tuple[int, int] | None:
        """Return the body's length and offset if these bytes start with this head."""

@final
class FastPath:
    """The connections of an intake whose deliveries the core collects and answers."""

    def __new__(cls) -> FastPath: ...
    def take_changed(self) -> list[Any]:
        """Return the protocols whose connections took or answered deliveries since the last call.

        They are in the order of their last answers.
        """

@final
class FastConnection:
    """One connection, called with the bytes that it receives; passes on what it does not take."""

    write: Callable[[bytes], object] | None
    is_ready: bool
    """Whether the next byte is the first of a request."""
    is_waiting: bool
    """Whether a delivery waits here for its answer."""
    direct_answers: int
    """Number of answers that can be written without regard to the protocol's state."""
    def __new__(
        cls, fast_path: FastPath, protocol: object, receive: Callable[[bytes], None]
    ) -> FastConnection: ...
    def __call__(self, data: bytes) -> None:
        """Take one complete delivery with the known head, or pass the bytes to `receive`."""
    def learn(self, head: KnownHead, sender: FastSender | None) -> None:
        """Set the head and the sender of the deliveries to take."""
    def take_answered(self) -> tuple[int, float]:
        """Return the number of answers since the last call, and the time of the last answer."""
    def close(self) -> None:
        """Drop the references to the protocol and its transport. An unanswered delivery is still stored."""

@final
class FastSender:
    """Deliveries of one drain, path, content type and coding that have arrived and are not taken yet."""

    def __new__(
        cls,
        origin: tuple[str, bytes, str, tuple[str, ...], int, bool, int],
        body_bytes_max: int,
        on_arrival: Callable[[FastSender], object],
    ) -> FastSender:
        """`origin`: a delivery without a body. `on_arrival` is called with the first after a `take`."""
    def take(self) -> list[FastBatch]:
        """Return what has arrived, in batches."""

@final
class FastBatch:
    """Deliveries of one sender that arrived before the same group."""

    @property
    def body_bytes(self) -> int: ...
    received_at_ns: int
    """To be set before the batch is committed."""
    @property
    def origin(self) -> Any:  # noqa: ANN401 - `receiver.model.Delivery`
        """The delivery without a body that its sender was made with."""
    @property
    def is_encoded(self) -> bool:
        """Whether the bodies are compressed."""
    def __len__(self) -> int: ...
    def hand_back(self) -> None:
        """Call each protocol's `take_back` with the bytes, which it handles as if they had just arrived."""
    def split(self) -> list[tuple[Any, bytes]]:
        """Return the bodies, each with the protocol of its connection; `None` if that is closed."""
    def answer(self, wire: bytes | None, reply: object, now: float) -> None:
        """Write `wire` to each connection; call its protocol's `answer_collected` if it needs `reply`."""

def footer(segment: bytes) -> bytes:
    """Return the footer that seals these records. Raises `CoreError` if a record is incomplete."""

def footer_for(heads: bytes) -> bytes:
    """Return the footer for the records with these heads (the first `HEAD_BYTES` of each, in order)."""

def footer_counts(tail: bytes) -> tuple[int, int, int] | None:
    """Return records, rows and bytes before the footer at the end of `tail`; `None` if there is none."""

def record_head(head: bytes) -> tuple[int, int] | None:
    """Return the unverified end of a record's delivery list, and its length, from its first `HEAD_BYTES`.

    Returns `None` if it is not the head of a record of the current version.
    """

def is_newer(segment: bytes) -> bool:
    """Return whether a segment begins with a record of a newer version, and not only with a damaged version.

    The first `HEAD_BYTES` suffice to exclude it.
    """

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
        """The deliveries that the record acknowledges, as msgpack."""
    @property
    def received_ms(self) -> tuple[int, int]:
        """Earliest and latest ReceivedAt of its rows, milliseconds since 1970."""

@final
class Scan:
    """Content of a segment: complete records only."""

    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def records(self) -> list[Record]: ...
    @property
    def good_bytes(self) -> int:
        """End of the last complete record: a torn tail is truncated here."""
    @property
    def sealed(self) -> bool:
        """Whether the segment ends with a complete footer."""
    @property
    def codec(self) -> str:
        """Compression of the first block: `lz4` or `zstd`."""
    @property
    def damage(self) -> list[tuple[int, int, str]]:
        """Offset, length and description of every acknowledged range that cannot be read."""

def scan(segment: bytes) -> Scan:
    """Read a segment. A torn tail is not an error; corruption of an acknowledged record is damage."""

def rewrite(
    segment: bytes,
    keep: Sequence[tuple[int, int]],
    codec: str,
    block_rows_max: int,
    new_identity: tuple[int, int, bool] | None = None,
) -> bytes:
    """Merge the blocks of a segment, keeping only these row ranges, into a new sealed segment.

    The identity stays the same unless `new_identity` is given: epoch, seq, and whether the new segment
    acknowledges the deliveries.
    """

def day_runs(segment: bytes, shards: int) -> list[tuple[int, int, int, int]]:
    """Return runs of rows with the same day and shard: first row, row after the last, day since 1970, shard.

    `shards`: number of shards of the cluster. 0 without one; the shards are then 0, too.
    """

@final
class ExplainedTrace:
    """A sampling decision about one trace, with its inputs. Thresholds have the format of tracestate."""

    @property
    def keep(self) -> bool: ...
    @property
    def weight(self) -> float | None:
        """Number of spans that a kept span represents; `None` if unknown or not kept."""
    @property
    def threshold(self) -> str | None:
        """Effective threshold; `None` if unknown or too high for any randomness."""
    @property
    def reason(self) -> str:
        """The value of the column `SampleReason`."""
    @property
    def ignored(self) -> list[str]:
        """Malformed fields of the tracestate, which count as absent."""
    @property
    def rule(self) -> int | None:
        """Index of the first matching rule."""
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
class PatternSet:
    """Regular expressions that are searched together, in linear time. Upper and lower case are equal."""

    def __new__(cls, patterns: Sequence[str]) -> PatternSet:
        """Raise `CoreError` for a pattern that is not valid, or that matches the empty text."""
    def is_match(self, text: str) -> bool:
        """Return whether a part of the text matches a pattern."""

@final
class Digests:
    """A growing set of 16-byte digests. Arguments are concatenated digests."""

    def __new__(cls, salt: bytes) -> Digests: ...
    def __len__(self) -> int: ...
    def add(self, digests: bytes) -> None:
        """Add these digests; known digests are ignored."""
    def known(self, digests: bytes) -> list[int]:
        """Return the indices of the given digests that are known."""
    def slots(self) -> bytes:
        """Return the hash table in its on-disk format: 16 bytes per slot."""

@final
class DigestTags:
    """In-memory index of a set of digests on disk: one byte per slot."""

    def __new__(cls, salt: bytes) -> DigestTags: ...
    def extend(self, slots: bytes) -> None:
        """Add the next slots, in the format of `Digests.slots`."""
    def known(self, digests: bytes, slot_equals: Callable[[int, bytes], bool]) -> list[int]:
        """Return the indices of known digests. `slot_equals` compares a slot of the file with a digest."""
