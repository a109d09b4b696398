"""Entries of a log, laid out so that a torn tail and rot are told apart. Pure bytes; no files here.

    entry:   magic, 4 bytes │ body_bytes u32 │ crc32 of the body u32 │ body

A torn tail is how a crash looks, an ordinary answer. An entry that cannot be read though others follow is
rot: told, read past.
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
    """What could be read of a log."""

    entries: list[Entry]
    good: bytes
    """Its whole entries and nothing else."""
    is_rotten: bool
    """Something between them was written and cannot be read."""


def framed(magic: bytes, bodies: Iterable[bytes]) -> bytes:
    """Lay bodies out as they are appended."""
    return b"".join(_HEAD.pack(magic, len(body), zlib.crc32(body)) + body for body in bodies)


def unframed(magic: bytes, content: bytes, decode: Callable[[bytes], Entry]) -> Log[Entry]:
    """Read a log: a torn tail is left out silently, rot is told. `decode` is a msgspec decoder's."""
    entries: list[Entry] = []
    good: list[bytes] = []
    at, is_rotten, is_behind_rot = 0, False, False
    while at >= 0:
        body, end = _body_at(magic, content, at)
        try:
            entry = decode(body)
        except msgspec.DecodeError:
            is_behind_rot = True
            at = content.find(magic, at + 1)
            continue
        is_rotten = is_rotten or is_behind_rot
        entries.append(entry)
        good.append(content[at:end])
        at = end
    return Log(entries, b"".join(good), is_rotten)


def _body_at(magic: bytes, content: bytes, at: int) -> tuple[bytes, int]:
    """The body there and where it ends; no body, which no decoder takes, if there is no whole entry."""
    if at + _HEAD.size > len(content):
        return b"", at
    found, body_bytes, checksum = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + body_bytes
    body = content[at + _HEAD.size : end]
    is_whole = found == magic and len(body) == body_bytes and zlib.crc32(body) == checksum
    return (body, end) if is_whole else (b"", at)
