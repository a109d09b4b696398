"""SampleTrace of a delivery: one span in JSON or protobuf, signed as the sender of a drain signs it.

Samples are kept out of counts by their time: it is as old as the receiver accepts, so no page, query or
rollup of the last days counts them, and the retention deletes them first. The ledger counts them as every
span, so its numbers add up.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from dataclasses import dataclass, replace
from itertools import islice

from receiver import transcode
from receiver.errors import OperatorError
from receiver.model import ContentKind
from receiver.settings import Drain, Settings

PROJECT = "trace-drain-doctor"
DEPLOYMENT = "dpl_doctor"
SERVICE = "trace-drain-doctor"
SPAN = "doctor sample"
DAY_S = 86_400
OLDEST_S = 946_684_800
"""Time of samples if spans are kept for ever: the year 2000."""
TRIES_MAX = 20_000
"""Number of trace ids that are tried until the sampling policy keeps one."""


@dataclass(frozen=True, slots=True)
class Sender:
    """What the sender of a drain is configured with. By default, what the receiver expects."""

    token: str
    secret: str
    header: str
    signature_header: str
    algorithm: str

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the headers with the credentials of a body."""
        is_bearer = self.header.lower() == "authorization"
        token = {self.header: f"Bearer {self.token}" if is_bearer else self.token} if self.token else {}
        if not self.secret:
            return token
        return {
            **token,
            self.signature_header: hmac.new(self.secret.encode(), body, self.algorithm).hexdigest(),
        }


def sender_of(drain: Drain, **given: str | None) -> Sender:
    """Return a sender with the newest credentials of a drain, except for the values that are given."""
    token, secret = next(iter(drain.tokens), ""), next(iter(drain.signature_secrets), "")
    sender = Sender(token, secret, drain.header, drain.signature_header, drain.signature_algorithm)
    return replace(sender, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class SampleTrace:
    """One span."""

    trace_id: str
    at_ns: int
    attributes: tuple[tuple[str, str], ...]
    """Of the resource."""

    def body(self, kind: ContentKind) -> bytes:
        """Return the body of a delivery with a new span of the trace."""
        span_id = secrets.token_hex(8)
        return self._protobuf(span_id) if kind is ContentKind.PROTOBUF else self._json(span_id)

    def _json(self, span_id: str) -> bytes:
        span = {
            "traceId": self.trace_id,
            "spanId": span_id,
            "name": SPAN,
            "kind": 1,
            "startTimeUnixNano": str(self.at_ns),
            "endTimeUnixNano": str(self.at_ns + 1_000_000),
        }
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in self.attributes]
        body = {
            "resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [span]}]}]
        }
        # Spaces and an escape, so that a proxy that encodes the body again changes it.
        return json.dumps(body, indent=1).replace("doctor sample", "doctor\\u0020sample").encode()

    def _protobuf(self, span_id: str) -> bytes:
        span = b"".join(
            (
                _field(1, bytes.fromhex(self.trace_id)),
                _field(2, bytes.fromhex(span_id)),
                _field(5, SPAN.encode()),
                b"\x30\x01",
                b"\x39" + self.at_ns.to_bytes(8, "little"),
                b"\x41" + (self.at_ns + 1_000_000).to_bytes(8, "little"),
            )
        )
        attributes = b"".join(
            _field(1, _field(1, key.encode()) + _field(2, _field(1, value.encode())))
            for key, value in self.attributes
        )
        return _field(1, _field(1, attributes) + _field(2, _field(2, span)))


def _field(number: int, content: bytes) -> bytes:
    """Encode a field of bytes; its length is below 16 KiB."""
    length = bytes((len(content) & 0x7F | 0x80, len(content) >> 7))
    return bytes((number << 3 | 2,)) + length + content


def sample_of(settings: Settings, drain: Drain) -> SampleTrace:
    """Return a sample that the sampling policy keeps. Raises `OperatorError` if it keeps none."""
    policy = transcode.policy(settings)
    place = {"drain": drain.name, "project": PROJECT, "environment": "", "service": SERVICE}
    ids = islice(iter(lambda: secrets.token_hex(16), ""), TRIES_MAX)
    trace_id = next(
        (
            trace_id
            for trace_id in ids
            if settings.sampling.mode == "off"
            or transcode.explain_sampling(policy, trace_id, trace_state="", **place).keep
        ),
        "",
    )
    if not trace_id:
        raise OperatorError(
            "[sampling] drops every sample; expected a rate above 0 for spans that match no other rule"
        )
    store = settings.store
    days = store.retention_days - store.late_margin_days - 1
    # An hour of margin, in which the sample must arrive.
    at_s = int(time.time()) - days * DAY_S + 3_600 if store.retention_days else OLDEST_S
    attributes = {
        "service.name": SERVICE,
        _key(settings, "project"): PROJECT,
        _key(settings, "deployment"): DEPLOYMENT,
    }
    return SampleTrace(trace_id, at_s * 10**9, tuple(attributes.items()))


def _key(settings: Settings, name: str) -> str:
    """Return the attribute of the resource that names the project or deployment of a span."""
    resolve = settings.resolve
    keys = [key.partition(":")[2] for key in getattr(resolve, name) if key.startswith("resource:")]
    return next(iter(keys), f"{resolve.preset}.{name}Id")
