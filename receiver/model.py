"""The nouns that every room shares: Delivery, SegmentId, Heading."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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
