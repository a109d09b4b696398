"""Content coding of answers: which compression a client prefers, and its encoder.

Invariant: an encoder returns all bytes of a piece, so that a client can decode each piece when it arrives.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

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


class Encoder(NamedTuple):
    """Encoder of an answer."""

    encode: Callable[[bytes], bytes]
    """Returns a piece in the coding, complete."""
    end: Callable[[], bytes]
    """Returns the end of the answer."""


def encoder_of(coding: Coding | None) -> Encoder:
    """Return a new encoder; `None`: the answer is not compressed."""
    if coding is None:
        return Encoder(bytes, bytes)
    if coding is Coding.ZSTD:
        compressor = zstd.ZstdCompressor()
        return Encoder(lambda piece: compressor.compress(piece, compressor.FLUSH_BLOCK), compressor.flush)
    gzip = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return Encoder(lambda piece: gzip.compress(piece) + gzip.flush(zlib.Z_SYNC_FLUSH), gzip.flush)


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
