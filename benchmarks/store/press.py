"""Bodies that differ in whatever identifies something: span ids, users, paths, statements are always fresh.

A body is encoded once, with marks in those places; later they are overwritten where they lie. Were they the
same again within a day, a table that sorts like to like would compress them away, which it cannot do in life.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from random import Random

from receiver.load.template import Template
from receiver.load.traffic import Resource, Shape, Span, Value
from receiver.load.wire import ENCODINGS

SHARED_SERVICE = "notification-worker"
"""Every project has it; the other services are each project's own."""
KNOWN_DIGITS = 5
"""Hex: a million users, products, orders."""
_ZEROS = b"0" * 12
_ID_MARK = b"\xf5\xc1\xd3\xe7"
"""First half of a span id; the other half is its place among the ids of the body."""
_KNOWN, _ONCE = "\x02known\x1fvalue", "\x02once\x1f-value"
"""Twelve characters each: drawn from so many that are known, or never seen before."""
_SOME_TIME_NS = 10**18
_NUMBER = re.compile(r"(?<=id = )[0-9]+|(?<=VALUES \()[0-9]+")
_MARKS = re.compile(rb"(?s)" + re.escape(_ID_MARK) + rb"....|\x02known\x1fvalue|\x02once\x1f-value")


class Body:
    """One body, to be filled in again and again."""

    def __init__(self, shape: Shape, ordinal: int) -> None:
        encoding = ENCODINGS["protobuf"]
        marked = encoding._replace(body=lambda resources: encoding.body(_marked(resources)))
        self._template = Template(shape, ordinal, marked)
        self._ids: dict[bytes, list[int]] = {}
        self._texts: list[tuple[int, int]] = []
        """Where they lie, and which of their digits is the first that is not 0."""
        for mark in _MARKS.finditer(self._template.body(bytes(8), _SOME_TIME_NS)):
            if mark[0].startswith(_ID_MARK):
                self._ids.setdefault(mark[0], []).append(mark.start())
            else:
                self._texts.append((mark.start(), 0 if mark[0] == _ONCE.encode() else 12 - KNOWN_DIGITS))

    def filled(self, dice: Random, at_ns: int) -> bytes:
        """The body as if it were sent now."""
        body = bytearray(self._template.body(dice.randbytes(8), at_ns))
        fresh = dice.randbytes(8 * len(self._ids))
        for place, positions in enumerate(self._ids.values()):
            for position in positions:
                body[position : position + 8] = fresh[8 * place : 8 * place + 8]
        digits = dice.randbytes(6 * len(self._texts)).hex().encode()
        for place, (position, first) in enumerate(self._texts):
            body[position : position + 12] = _ZEROS[:first] + digits[12 * place + first : 12 * place + 12]
        return bytes(body)


def _marked(resources: Sequence[Resource]) -> list[Resource]:
    """Services as the projects' own, and marks in what is to be fresh."""
    places: dict[bytes, bytes] = {b"": b""}
    return [
        resource._replace(
            attributes={**resource.attributes, "service.name": _name(resource)},
            spans=tuple(_marked_span(span, places) for span in resource.spans),
        )
        for resource in resources
    ]


def _name(resource: Resource) -> str:
    service, project = resource.service, str(resource.attributes["platform.projectId"])
    return service if service == SHARED_SERVICE else f"{service}-{project[-2:]}"


def _marked_span(span: Span, places: dict[bytes, bytes]) -> Span:
    """`places`: what stands for each span id; a span comes after its parent."""
    places[span.span_id] = _ID_MARK + struct.pack(">I", len(places))
    return span._replace(
        span_id=places[span.span_id],
        parent_id=places[span.parent_id],
        attributes={key: _marked_value(key, value, span) for key, value in span.attributes.items()},
    )


def _marked_value(key: str, value: Value, span: Span) -> Value:
    match key:
        case "app.user.id":
            return f"usr_{_KNOWN}"
        case "faas.invocation_id":
            return _ONCE
        case "url.path":
            return str(span.attributes["http.route"]).replace("[id]", _KNOWN)
        case "db.query.text":
            return _NUMBER.sub(_KNOWN, str(value))
        case _:
            return value
