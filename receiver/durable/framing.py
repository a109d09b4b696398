"""Framing of log entries, which distinguishes a torn tail from damage. This module opens no files.

    entry:   magic, 4 bytes │ body_bytes u32 │ crc32 of the body u32 │ body

A torn tail is the normal result of a crash. An unreadable entry that is followed by another entry is damage:
it is reported and skipped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import msgspec

Entry = TypeVar("Entry")

_HEAD = struct.Struct("<4sII")


class Log(NamedTuple, Generic[Entry]):
    """Result of reading a log."""

    entries: list[Entry]
    good: bytes
    """The bytes of the readable entries, without anything else."""
    is_damaged: bool
    """Whether there are unreadable bytes before or between the entries."""


def framed(magic: bytes, bodies: Iterable[bytes]) -> bytes:
    """Return the frames of these bodies, for appending to a log."""
    return b"".join(_HEAD.pack(magic, len(body), zlib.crc32(body)) + body for body in bodies)


def unframed(magic: bytes, content: bytes, decode: Callable[[bytes], Entry]) -> Log[Entry]:
    """Read a log. A torn tail is omitted silently; damage before it sets `is_damaged`.

    `decode`: method of a msgspec decoder, which raises `DecodeError`.
    """
    entries: list[Entry] = []
    good: list[bytes] = []
    at, is_damaged, is_after_damage = 0, False, False
    while at >= 0:
        body, end = _body_at(magic, content, at)
        try:
            entry = decode(body)
        except msgspec.DecodeError:
            # Damage only if another entry follows; otherwise this is a torn tail.
            is_after_damage = True
            # Searched byte by byte, because the length field of an unreadable entry cannot be trusted.
            at = content.find(magic, at + 1)
            continue
        is_damaged = is_damaged or is_after_damage
        entries.append(entry)
        good.append(content[at:end])
        at = end
    return Log(entries, b"".join(good), is_damaged)


def _body_at(magic: bytes, content: bytes, at: int) -> tuple[bytes, int]:
    """Return the body at `at` and its end. For an invalid entry it is empty, which no decoder accepts."""
    if at + _HEAD.size > len(content):
        return b"", at
    found_magic, body_bytes, checksum = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + body_bytes
    # A declared length beyond the end of the file gives a shorter body, which `is_whole` detects.
    body = content[at + _HEAD.size : end]
    is_whole = found_magic == magic and len(body) == body_bytes and zlib.crc32(body) == checksum
    return (body, end) if is_whole else (b"", at)
