"""Content coding of answers: which compression a client prefers, and its encoder.

Invariant: an encoder returns all bytes of a piece, so that a client can decode each piece when it arrives.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from enum import StrEnum
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
"""The largest window, in the gzip format."""


class Coding(StrEnum):
    """A compression of answers. The first is chosen if a client accepts several equally."""

    ZSTD = "zstd"
    GZIP = "gzip"


class Encoder(Protocol):
    """Encoder of an answer."""

    def encode(self, piece: bytes) -> bytes:
        """Return a piece in the coding, complete."""

    def end(self) -> bytes:
        """Return the end of the answer."""


class _Zstd:
    def __init__(self) -> None:
        self._compressor = zstd.ZstdCompressor()

    def encode(self, piece: bytes) -> bytes:
        return self._compressor.compress(piece, zstd.ZstdCompressor.FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._compressor.flush()


class _Gzip:
    def __init__(self) -> None:
        self._compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)

    def encode(self, piece: bytes) -> bytes:
        return self._compressor.compress(piece) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._compressor.flush()


class _Identity:
    def encode(self, piece: bytes) -> bytes:
        return piece

    def end(self) -> bytes:
        return b""


def encoder_of(coding: Coding | None) -> Encoder:
    """Return a new encoder; `None`: the answer is not compressed."""
    if coding is None:
        return _Identity()
    return _Zstd() if coding is Coding.ZSTD else _Gzip()


def preferred_coding(accept_encoding: str) -> Coding | None:
    """Return the coding that a client prefers; `None` if it accepts none, or prefers an answer without."""
    weight_of = dict(_weights(accept_encoding.lower()))
    # `max` returns the first of equals.
    best = max(Coding, key=lambda coding: weight_of.get(coding, weight_of.get("*", 0.0)))
    weight = weight_of.get(best, weight_of.get("*", 0.0))
    return best if weight > 0 and weight >= weight_of.get("identity", 0.0) else None


def _weights(accept_encoding: str) -> Iterator[tuple[str, float]]:
    for item in accept_encoding.split(","):
        name, _, parameter = item.partition(";")
        key, _, value = parameter.partition("=")
        yield name.strip(), _weight(value) if key.strip() == "q" else 1.0


def _weight(text: str) -> float:
    try:
        return float(text)
    # If a weight is invalid, send the answer without compression, which every client can read.
    except ValueError:
        return 0.0
