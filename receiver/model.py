"""The nouns that every room shares: whose spans, which delivery, and what the core makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class ContentKind(StrEnum):
    """What a body is, once unpacked."""

    PROTOBUF = "protobuf"
    JSON = "json"
    NDJSON = "ndjson"


class Delivery(NamedTuple):
    """One request body from a drain, as it came off the wire: a tuple, as the core takes it."""

    drain: str
    body: bytes
    content_kind: ContentKind
    encodings: tuple[str, ...]
    """Content codings in the order they were applied, lower case, `identity` left out."""
    received_at_ns: int
    """Wall clock, nanoseconds since 1970."""
    strict: bool
    body_bytes_max: int
    """The drain's limit for the body, before and after unpacking."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentId:
    """Who a segment is: the random bits of an intake start, and its counter. Never the clock."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch:016x}-{self.seq:010d}"


class Heading(NamedTuple):
    """Whose spans are counted together."""

    drain: str
    project: str
    hour: int
    """Of receipt, counted from 1970 in UTC."""


class Outcome(Protocol):
    """What became of one delivery. See `receiver/_transcode.pyi`."""

    @property
    def verdict(self) -> str:
        """`accepted`, `malformed`, `too_large`, `crashed`; `postponed`: its group had no room for it."""

    @property
    def is_plain(self) -> bool:
        """Accepted in full, and nothing to tell its sender."""

    @property
    def received(self) -> int:
        """Spans in the body."""

    @property
    def stored(self) -> int:
        """Spans in the record."""

    @property
    def sampled_out(self) -> int:
        """Spans dropped by policy."""

    @property
    def rejected(self) -> int:
        """Spans refused one by one."""

    @property
    def unresolved(self) -> int:
        """Stored spans for which no project was found."""

    @property
    def message(self) -> str:
        """For `partial_success`, or why the delivery is refused."""

    @property
    def field(self) -> str:
        """The field at fault when refused."""

    @property
    def reasons(self) -> Sequence[tuple[str, int]]:
        """Warnings and rejections by their stable key."""


class Commit(Protocol):
    """One record, ready to append, and what became of each delivery."""

    @property
    def record(self) -> bytes:
        """Empty if there is nothing to journal."""

    @property
    def rows(self) -> int:
        """Rows in the record."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One for each delivery, in their order."""

    @property
    def spans(self) -> Sequence[tuple[str, int, int, int, int, int]]:
        """Of what was accepted, by drain: received, stored, sampled out, rejected, unresolved."""

    @property
    def reasons(self) -> Sequence[tuple[str, int]]:
        """Warnings and rejections of what was accepted, by their stable key."""
