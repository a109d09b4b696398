"""A body that is made once, then only filled in: trace ids at every request, times every few seconds.

Keeps: a fresh body costs one join, whatever it holds: 30 µs for 520 spans, so that one core can load another.
"""

from __future__ import annotations

from receiver.load.traffic import Shape, delivery
from receiver.load.wire import Encoding

RETIMED_S = 5
"""Times in a body are older than the request by at most so much, and a second."""
_BACKDATED_NS = 10**9
"""Spans have ended before they are sent."""


class Template:
    """One delivery, all but the fresh halves of its trace ids, and its times."""

    def __init__(self, shape: Shape, ordinal: int, encoding: Encoding) -> None:
        self.ordinal = ordinal
        self.base_ns = 0
        """When its first span starts."""
        self._encoding = encoding
        body, offsets_ns = encoding.body(delivery(shape, ordinal))
        self._marked = bytearray(body)
        found = [(mark.start(), encoding.place(mark[0])) for mark in encoding.time_mark.finditer(body)]
        if sorted(place for _, place in found) != list(range(len(offsets_ns))):
            raise AssertionError("values look like the marks of times; expected marks of their own")
        self._spots = [(position, offsets_ns[place]) for position, place in found]
        self._pieces: list[bytes] = []

    def body(self, half: bytes, now_ns: int) -> bytes:
        """The body with this half in each of its trace ids."""
        if now_ns - self.base_ns > RETIMED_S * 10**9 + _BACKDATED_NS:
            self._retime(now_ns - _BACKDATED_NS)
        return self._encoding.half(half).join(self._pieces)

    def _retime(self, base_ns: int) -> None:
        self.base_ns = base_ns
        width, write = len(self._encoding.time(base_ns)), self._encoding.time
        for position, offset_ns in self._spots:
            self._marked[position : position + width] = write(base_ns + offset_ns)
        self._pieces = bytes(self._marked).split(self._encoding.half_mark)
