"""Shared types of all packages: delivery, segment id, and the core's results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class ContentKind(StrEnum):
    """Format of a body after decompression."""

    PROTOBUF = "protobuf"
    JSON = "json"
    NDJSON = "ndjson"


class Delivery(NamedTuple):
    """One request body from a drain, as received. It is a tuple because the core expects tuples."""

    drain: str
    body: bytes
    content_kind: ContentKind
    encodings: tuple[str, ...]
    """Content codings in the order they were applied, lower case, `identity` left out."""
    received_at_ns: int
    """Wall clock, nanoseconds since 1970."""
    strict: bool
    body_bytes_max: int
    """The drain's limit for the body, before and after decompression."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentId:
    """Identity of a segment: the random epoch of an intake start, and a counter. Never the clock."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch:016x}-{self.seq:010d}"


class Heading(NamedTuple):
    """Key of the ledger: spans with the same drain, project and hour are counted together."""

    drain: str
    project: str
    hour: int
    """Hour of receipt, counted from 1970 in UTC."""


class Outcome(Protocol):
    """Result of transcoding one delivery. See `receiver/_transcode.pyi`."""

    @property
    def verdict(self) -> str:
        """`accepted`, `malformed`, `too_large`, `crashed`, or `postponed`: the record had no room for it."""

    @property
    def is_plain(self) -> bool:
        """Whether the delivery was accepted in full, without a warning for the sender."""

    @property
    def received(self) -> int:
        """Spans in the body."""

    @property
    def stored(self) -> int:
        """Spans in the record."""

    @property
    def sampled_out(self) -> int:
        """Spans dropped by the sampling policy."""

    @property
    def rejected(self) -> int:
        """Spans rejected individually."""

    @property
    def unresolved(self) -> int:
        """Stored spans for which no project was found."""

    @property
    def message(self) -> str:
        """Text for `partial_success`, or the reason that the delivery is refused."""

    @property
    def field(self) -> str:
        """The invalid field of a refused delivery."""

    @property
    def reasons(self) -> Sequence[tuple[str, int]]:
        """Number of warnings and rejections by stable key."""


class Commit(Protocol):
    """One record, ready to append, and the result of each delivery."""

    @property
    def record(self) -> bytes:
        """The encoded record; empty if no row is to be stored."""

    @property
    def rows(self) -> int:
        """Rows in the record."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One outcome for each delivery, in the same order."""

    @property
    def spans(self) -> Sequence[tuple[str, int, int, int, int, int]]:
        """Accepted deliveries by drain: spans received, stored, sampled out, rejected, unresolved."""

    @property
    def reasons(self) -> Sequence[tuple[str, int]]:
        """Warnings and rejections in accepted deliveries, by stable key."""
