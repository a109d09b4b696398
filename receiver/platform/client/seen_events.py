"""Detects events that a followed stream has already returned, after a new connection.

Each new connection requests events from `OVERLAP_MS` before the newest event, because events may become
readable in another order than that of their times. An event with a time in the future counts as created now:
otherwise no connection would request the events before that time. Up to `SEEN_MAX` digests of events in this
window are in memory. With more events the window is shorter, so that an event is repeated rather than missed.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque

import orjson

from receiver.platform.client.event import Event

OVERLAP_MS = 300_000
"""Time by which an event may become readable late."""
SEEN_MAX = 20_000
_DIGEST_BYTES = 16


class SeenEvents:
    def __init__(self, since_ms: int | None) -> None:
        self._first_ms = since_ms
        self._newest_ms: float | None = None
        self._keys: set[bytes] = set()
        self._in_order: deque[tuple[float, bytes]] = deque()
        """Time and key of each known event, in the order of arrival."""
        self._forgotten_ms = 0.0
        """Newest time of an event that was evicted because of `SEEN_MAX`."""
        self._repeats: Counter[bytes] = Counter()
        self._dropped_before_ms = 0

    def since_ms(self) -> int | None:
        """Return the time from which a new connection must request events."""
        if self._newest_ms is None:
            return self._first_ms
        begin_ms = int(max(self._newest_ms - OVERLAP_MS, self._forgotten_ms))
        return max(begin_ms, self._first_ms or 0)

    def begin_connection(self) -> None:
        """Prepare for the events of a new connection, which begin at `since_ms`."""
        self._repeats.clear()
        if self._newest_ms is not None:
            self._dropped_before_ms = self.since_ms() or 0

    def is_new(self, event: Event, now_ms: float) -> bool:
        """Return whether the event is new, and record it."""
        # The platform may send more events than the request selects.
        if event.created < self._dropped_before_ms:
            return False
        key = self._key(event)
        if key in self._keys:
            return False
        self._keys.add(key)
        self._in_order.append((event.created, key))
        self._newest_ms = max(min(event.created, now_ms), self._newest_ms or 0.0)
        self._forget()
        return True

    def _key(self, event: Event) -> bytes:
        content = orjson.dumps(event.raw, option=orjson.OPT_SORT_KEYS)
        digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
        if event.payload.id:
            return digest
        # Without an id, equal events are different events: each has its number in the connection.
        self._repeats[digest] += 1
        return digest + self._repeats[digest].to_bytes(8)

    def _forget(self) -> None:
        """Evict the events before the window, and the oldest above the limit."""
        newest_ms = self._newest_ms or 0.0
        begin_ms = newest_ms - OVERLAP_MS
        while self._in_order and (self._in_order[0][0] < begin_ms or len(self._in_order) > SEEN_MAX):
            created_ms, key = self._in_order.popleft()
            self._keys.discard(key)
            digest, number = key[:_DIGEST_BYTES], int.from_bytes(key[_DIGEST_BYTES:])
            # Equal events with higher numbers may still be known.
            if self._repeats[digest] == number:
                del self._repeats[digest]
            if begin_ms <= created_ms <= newest_ms:
                self._forgotten_ms = max(self._forgotten_ms, created_ms)
