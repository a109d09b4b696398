"""Request body that is encoded once; each request gets new trace ids, and regularly new times.

Invariant: a new body costs one join: 30 µs for 520 spans, so that one core generates enough load for another.
"""

from __future__ import annotations

from collections.abc import Sequence

from trace_drain_testing.load.traffic import Resource
from trace_drain_testing.load.wire import Encoding

RETIMED_S = 5
"""Interval at which the times in a body are renewed."""
_BACKDATED_NS = 10**9
"""Age of the first span when the body is sent, so that all spans have ended by then."""


class Template:
    """One encoded delivery without its times and the starts of its trace ids."""

    def __init__(self, resources: Sequence[Resource], encoding: Encoding) -> None:
        self.base_ns = 0
        """Start time of its first span."""
        self._encoding = encoding
        body, offsets_ns = encoding.body(resources)
        self._marked = bytearray(body)
        marks = [(mark.start(), encoding.time_index(mark[0])) for mark in encoding.time_mark.finditer(body)]
        if sorted(index for _, index in marks) != list(range(len(offsets_ns))):
            raise AssertionError("an attribute value equals a time mark; expected unique marks")
        # Times have a fixed width in both encodings, so they are overwritten in place.
        self._spots = [(position, offsets_ns[index]) for position, index in marks]
        self._pieces: list[bytes] = []

    def body(self, start: bytes, now_ns: int) -> bytes:
        """Return the body with this start of all trace ids."""
        if now_ns - self.base_ns > RETIMED_S * 10**9 + _BACKDATED_NS:
            self._retime(now_ns - _BACKDATED_NS)
        return self._encoding.start(start).join(self._pieces)

    def body_at(self, start: bytes, base_ns: int) -> bytes:
        """Return the body whose first span starts at a given time."""
        self._retime(base_ns)
        return self._encoding.start(start).join(self._pieces)

    def _retime(self, base_ns: int) -> None:
        self.base_ns = base_ns
        width, write = len(self._encoding.time(base_ns)), self._encoding.time
        for position, offset_ns in self._spots:
            self._marked[position : position + width] = write(base_ns + offset_ns)
        # Split at the ids once, so that a new body only joins the pieces with another id.
        self._pieces = bytes(self._marked).split(self._encoding.start_mark)
