"""Request body that is encoded once, then filled in: trace ids for every request, times every few seconds.

Invariant: a new body costs one join: 30 µs for 520 spans, so that one core can load another.
"""

from __future__ import annotations

from receiver.load.traffic import Shape, delivery
from receiver.load.wire import Encoding

RETIMED_S = 5
"""Times in a body are at most this much, plus a second, older than the request."""
_BACKDATED_NS = 10**9
"""Spans end before they are sent."""


class Template:
    """One encoded delivery without its times and the per-request halves of its trace ids."""

    def __init__(self, shape: Shape, ordinal: int, encoding: Encoding) -> None:
        self.ordinal = ordinal
        self.base_ns = 0
        """Start time of its first span."""
        self._encoding = encoding
        body, offsets_ns = encoding.body(delivery(shape, ordinal))
        self._marked = bytearray(body)
        marks = [(mark.start(), encoding.place(mark[0])) for mark in encoding.time_mark.finditer(body)]
        if sorted(place for _, place in marks) != list(range(len(offsets_ns))):
            raise AssertionError("an attribute value equals a time mark; expected unique marks")
        self._spots = [(position, offsets_ns[place]) for position, place in marks]
        self._pieces: list[bytes] = []

    def body(self, half: bytes, now_ns: int) -> bytes:
        """Return the body with this half in all trace ids."""
        if now_ns - self.base_ns > RETIMED_S * 10**9 + _BACKDATED_NS:
            self._retime(now_ns - _BACKDATED_NS)
        return self._encoding.half(half).join(self._pieces)

    def _retime(self, base_ns: int) -> None:
        self.base_ns = base_ns
        width, write = len(self._encoding.time(base_ns)), self._encoding.time
        for position, offset_ns in self._spots:
            self._marked[position : position + width] = write(base_ns + offset_ns)
        self._pieces = bytes(self._marked).split(self._encoding.half_mark)
