"""Tests of the generated traffic: reproducible, equal in both encodings, with unique trace ids."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
from collections.abc import Iterable
from typing import Any, Literal

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from trace_drain_testing.load.requests import LoadRequest, Recipe, RequestStream, signed_with
from trace_drain_testing.load.template import RETIMED_S, Template
from trace_drain_testing.load.traffic import Shape, delivery
from trace_drain_testing.load.wire import ENCODINGS

SMALL = Shape(spans=25)
NOW_NS = 1_790_000_000 * 10**9


def recipe(shape: Shape = SMALL, encoding: Literal["protobuf", "json"] = "protobuf", **fields: Any) -> Recipe:  # noqa: ANN401 - any field of Recipe
    return Recipe(shape, b"RUN", "host:4318", "/v1/traces", encoding=encoding, spans_varied=1, **fields)


def requests(stream: RequestStream, count: int) -> list[LoadRequest]:
    taken = [stream.next() for _ in range(count)]
    return [request for request in taken if request is not None]


def decoded(body: bytes, encoding: str = "protobuf") -> ExportTraceServiceRequest:
    """Decode with OpenTelemetry's library, which expects ids in base64 where OTLP/JSON has hex."""
    if encoding == "protobuf":
        return ExportTraceServiceRequest.FromString(body)

    def in_base64(pairs: dict[str, Any]) -> dict[str, Any]:
        for name in pairs.keys() & {"traceId", "spanId", "parentSpanId"}:
            pairs[name] = base64.b64encode(bytes.fromhex(pairs[name])).decode()
        return pairs

    document = json.loads(body, object_hook=in_base64)
    return json_format.ParseDict(document, ExportTraceServiceRequest())


def spans(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
    ]


def test_seed_and_ordinal_determine_the_spans() -> None:
    same = delivery(SMALL, 3)

    assert same == delivery(Shape(spans=25), 3)
    assert same != delivery(SMALL, 4)
    assert same != delivery(Shape(spans=25, seed=2), 3)


@pytest.mark.parametrize(
    "shape", [SMALL, Shape(spans=1), Shape(spans=520), Shape(attributes=0, spans=12)], ids=str
)
def test_both_encodings_decode_to_the_same_spans(shape: Shape) -> None:
    start = b"RUN\0\0\0\7"

    protobuf, as_json = (
        Template(delivery(shape, 0), ENCODINGS[name]).body(start, NOW_NS) for name in ("protobuf", "json")
    )

    assert decoded(protobuf) == decoded(as_json, "json")
    assert len(spans(decoded(protobuf))) == shape.spans


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_trace_ids_are_unique_across_requests(encoding: Literal["protobuf", "json"]) -> None:
    sent = requests(RequestStream(recipe(encoding=encoding)), 500)

    ids = [{span.trace_id for span in spans(decoded(request.body, encoding))} for request in sent[::10]]
    assert len(set().union(*ids)) == sum(map(len, ids))
    assert len({request.body for request in sent}) == len(sent)


def test_trace_id_contains_the_run_and_the_request_number() -> None:
    last_request = requests(RequestStream(recipe()), 300)[-1]

    assert {span.trace_id[:7] for span in spans(decoded(last_request.body))} == {b"RUN\0\0\1\x2b"}


def test_traces_do_not_share_their_first_half() -> None:
    sent = [spans(decoded(request.body)) for request in requests(RequestStream(recipe(Shape(spans=520))), 5)]

    ids = {span.trace_id for body in sent for span in body}
    assert len({trace_id[:8] for trace_id in ids}) == len(ids) == 5 * 52


def test_request_stream_ends_after_its_maximum_count() -> None:
    assert len(requests(RequestStream(recipe(), 7), 10)) == 7


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_span_times_are_shortly_before_the_send_time(encoding: str) -> None:
    template = Template(delivery(SMALL, 0), ENCODINGS[encoding])

    for now_ns in (NOW_NS, NOW_NS + 2 * 10**9, NOW_NS + 60 * 10**9):
        times_ns = [
            time_ns
            for span in spans(decoded(template.body(bytes(7), now_ns), encoding))
            for time_ns in (span.start_time_unix_nano, span.end_time_unix_nano)
        ]
        assert max(times_ns) <= now_ns
        assert min(times_ns) >= now_ns - (RETIMED_S + 1) * 10**9


def test_traffic_has_the_configured_shape() -> None:
    shape = Shape(spans=100, attributes=15, events_share=1, projects=2, cardinality=1)

    decoded_request = decoded(requests(RequestStream(recipe(shape)), 1)[0].body)

    made = spans(decoded_request)
    assert {len(span.attributes) for span in made} == {15}
    assert {len(span.events) for span in made} == {1}
    resources = [resource.resource for resource in decoded_request.resource_spans]
    assert values_of(resources, "platform.projectId") <= {"prj_000000", "prj_000001"}
    assert values_of(made, "app.user.id") == {f"usr_{0:012x}"}


def values_of(owners: Iterable[Any], key: str) -> set[str]:
    """Return the values of an attribute."""
    return {pair.value.string_value for each in owners for pair in each.attributes if pair.key == key}


def test_compressed_request_has_a_content_encoding_header() -> None:
    stream = RequestStream(recipe(compression="gzip"), 5)

    ready = stream.prepare(3)

    first = requests(stream, 1)[0]
    assert ready == 3
    assert b"\r\nContent-Encoding: gzip\r\n" in first.head
    assert f"\r\nContent-Length: {len(first.body)}\r\n\r\n".encode() in first.head
    assert len(spans(decoded(gzip.decompress(first.body)))) == SMALL.spans
    assert [request.number for request in requests(stream, 5)] == [1, 2, 3, 4]


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_signed_request_has_a_header_with_the_hmac_of_its_body(algorithm: str) -> None:
    request = requests(
        RequestStream(recipe(sign=signed_with(b"secret", "x-vercel-signature", algorithm))), 1
    )[0]

    expected = hmac.new(b"secret", request.body, getattr(hashlib, algorithm)).hexdigest()
    assert f"\r\nx-vercel-signature: {expected}\r\n".encode() in request.head
