"""Stream of requests, each with its own trace ids, ready to be written to a socket.

trace id:  run 3 bytes │ request number 4 bytes │ number of the trace 1 byte │ from the seed 8 bytes
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import itertools
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from trace_drain_testing.load.template import Template
from trace_drain_testing.load.traffic import Shape, delivery
from trace_drain_testing.load.wire import ENCODINGS

SPANS_VARIED = 16_640
"""Number of spans with different content. Later spans repeat it with new ids and times."""
TEMPLATES_MIN = 16
GZIP_LEVEL = 6
"""Compression level of SDKs."""
READY_BYTES_MAX = 256 << 20
"""Memory limit for the bodies that are compressed before the run starts."""
RUN_BYTES = 3
NUMBERS_MAX = 1 << 32


class Origin(NamedTuple):
    """Template and time of a request, for comparing stored spans with it."""

    ordinal: int
    base_ns: int


@dataclass(slots=True)
class LoadRequest:
    """One request, kept until its final response."""

    number: int
    origin: Origin
    head: bytes
    body: bytes
    intended_s: float = 0.0
    attempts: int = 0


@dataclass(frozen=True)
class Recipe:
    shape: Shape
    run: bytes
    host: str
    path: str
    encoding: Literal["protobuf", "json"] = "protobuf"
    compression: Literal["none", "gzip"] = "none"
    headers: tuple[tuple[str, str], ...] = ()
    sign: Callable[[bytes], tuple[str, str]] | None = field(default=None)
    """Returns name and value of the signature header for a body."""
    spans_varied: int = SPANS_VARIED


def signed_with(secret: bytes, header: str, algorithm: str) -> Callable[[bytes], tuple[str, str]]:
    digest = getattr(hashlib, algorithm)
    return lambda body: (header, hmac.new(secret, body, digest).hexdigest())


class RequestStream:
    def __init__(self, recipe: Recipe, count_max: int = NUMBERS_MAX) -> None:
        self._recipe = recipe
        encoding = ENCODINGS[recipe.encoding]
        template_count = min(count_max, max(TEMPLATES_MIN, -(-recipe.spans_varied // recipe.shape.spans)))
        # Encoded before the run, so that the generator is not its bottleneck.
        templates = [Template(delivery(recipe.shape, ordinal), encoding) for ordinal in range(template_count)]
        self._templates = itertools.cycle(enumerate(templates))
        self._numbers = iter(range(min(count_max, NUMBERS_MAX)))
        self._ready: deque[LoadRequest] = deque()
        lines = {
            "Host": recipe.host,
            "User-Agent": "trace-drain-load",
            "Content-Type": encoding.content_type,
            **({"Content-Encoding": "gzip"} if recipe.compression == "gzip" else {}),
            **dict(recipe.headers),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._head = f"POST {recipe.path} HTTP/1.1\r\n{head}".encode()

    def prepare(self, count: int) -> int:
        """Prepare up to `count` requests, within the memory limit. Return their number."""
        size_bytes = 0
        for request in itertools.islice(self._fresh(), count):
            self._ready.append(request)
            size_bytes += len(request.body)
            if size_bytes > READY_BYTES_MAX:
                break
        return len(self._ready)

    def next(self) -> LoadRequest | None:
        """Return the next request; None after the last."""
        # Each call creates a generator; they share the numbers and templates, so no request repeats.
        return self._ready.popleft() if self._ready else next(self._fresh(), None)

    def _fresh(self) -> Iterator[LoadRequest]:
        for number in self._numbers:
            ordinal, template = next(self._templates)
            body = template.body(self._recipe.run + struct.pack(">I", number), time.time_ns())
            if self._recipe.compression == "gzip":
                # Without a time stamp, which would make equal bodies differ.
                body = gzip.compress(body, GZIP_LEVEL, mtime=0)
            yield LoadRequest(number, Origin(ordinal, template.base_ns), self._head_of(body), body)

    def _head_of(self, body: bytes) -> bytes:
        signature = b""
        if self._recipe.sign:
            name, value = self._recipe.sign(body)
            signature = f"{name}: {value}\r\n".encode()
        return b"%b%bContent-Length: %d\r\n\r\n" % (self._head, signature, len(body))
