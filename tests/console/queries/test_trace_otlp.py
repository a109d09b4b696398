"""A trace read as OTLP is the trace that was sent, with the text of its attribute values."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData

from receiver import transcode
from receiver.console.queries.traces.otlp import PART_SPANS, OtlpFormat
from receiver.console.queries.traces.traces import trace, trace_otlp
from receiver.durable.files import DISK
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.journal.segments import Journal
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import Settings
from tests.support.journal import appender, limits
from tests.support.random_filters import insert
from tests.support.segments import DIGEST_KEY

TRACE = bytes(range(1, 17))
NOW_NS = time.time_ns()
SPANS_EACH = 3
TYPED = [
    (AnyValue(string_value="tëxt \x00\n\U0001f600"), "tëxt \x00\n\U0001f600"),
    (AnyValue(int_value=-(2**63)), "-9223372036854775808"),
    (AnyValue(bool_value=True), "true"),
    (AnyValue(double_value=0.1), "0.1"),
    (AnyValue(bytes_value=b"\xff\x00"), "/wA="),
    (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue(string_value="a")])), '[1,"a"]'),
    (AnyValue(), ""),
]
"""Values as a sender sends them, and their text."""


def sent_group(resource: int) -> ResourceSpans:
    """Return spans of one resource in two scopes, with every field that the table holds."""
    group = ResourceSpans(schema_url=f"https://example.test/resource/{resource}")
    group.resource.attributes.add(key="service.name").value.string_value = f"service {resource}"
    for place in range(2):
        part = group.scope_spans.add(schema_url=f"https://example.test/scope/{place}")
        part.scope.name, part.scope.version = f"scope {place}", "1.2"
        part.scope.attributes.add(key="s").value.string_value = "of the scope"
        for number in range(SPANS_EACH):
            add_span(part, 100 * resource + 10 * place + number + 1)
    return group


def add_span(part: Any, number: int) -> None:  # noqa: ANN401 - protobuf's classes are made at run time
    span = part.spans.add(
        trace_id=TRACE,
        span_id=number.to_bytes(8, "big"),
        parent_span_id=(number - 1).to_bytes(8, "big") if number % 10 > 1 else b"",
        trace_state="vendor=1",
        flags=0x301,
        name=f"span {number}",
        kind=number % 6,
        start_time_unix_nano=NOW_NS + number % 100,  # the groups overlap in time
        end_time_unix_nano=NOW_NS + 2**40 + 3 * number,
        dropped_attributes_count=1,
        dropped_events_count=2,
        dropped_links_count=3,
    )
    span.attributes.extend(KeyValue(key=f"k{place}", value=value) for place, (value, _) in enumerate(TYPED))
    span.status.code, span.status.message = number % 3, "text of the status"
    for name in ("exception", ""):
        event = span.events.add(time_unix_nano=NOW_NS + number, name=name)
        event.attributes.add(key="e").value.int_value = 5
    link = span.links.add(trace_id=bytes(16)[:-1] + b"\x07", span_id=bytes(7) + b"\x08", trace_state="l=1")
    link.attributes.add(key="l").value.double_value = 1.5


def expected_of(request: ExportTraceServiceRequest) -> TracesData:
    """Return the sent spans, with the text of each attribute value."""
    expected = TracesData(resource_spans=request.resource_spans)
    for group in expected.resource_spans:
        for part in group.scope_spans:
            for span in part.spans:
                for item, (_, text) in zip(span.attributes, TYPED, strict=True):
                    item.value.string_value = text
                for event in span.events:
                    event.attributes[0].value.string_value = "5"
                span.links[0].attributes[0].value.string_value = "1.5"
    return expected


@dataclass(frozen=True)
class Sent:
    """A store with a trace that two senders sent, and the expected answer."""

    store: Store
    expected: TracesData


@pytest.fixture(scope="module")
def sent(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    directory = tmp_path_factory.mktemp("otlp")
    request = ExportTraceServiceRequest(resource_spans=[sent_group(1), sent_group(2)])
    policy, journal = transcode.policy(Settings(journal=limits(codec="lz4"))), appender(DISK, directory)
    for drain in ("first", "second"):
        body = request.SerializeToString()
        delivery = Delivery(
            drain, body, ContentKind.PROTOBUF, (), NOW_NS, strict=False, body_bytes_max=1 << 20
        )
        segment = journal.choose()
        committed = transcode.commit(policy, [delivery], segment, DIGEST_KEY)
        journal.append(segment, committed.record, committed.rows)
    journal.close()
    for place, segment_file in enumerate(Journal(directory).sealed()):
        store.insert(segment_file.path, token=f"otlp#{place}", query_id=f"trace-drain-otlp#{place}")
    return Sent(store, expected_of(request))


def test_protobuf_is_what_was_sent_with_values_as_text(sent: Sent) -> None:
    answer = b"".join(trace_otlp(sent.store, TRACE.hex(), OtlpFormat.PROTOBUF))

    assert TracesData.FromString(answer) == sent.expected


def test_json_has_hex_ids_integers_as_text_and_enums_as_numbers(sent: Sent) -> None:
    answer = json.loads(b"".join(trace_otlp(sent.store, TRACE.hex(), OtlpFormat.JSON)))

    groups = answer["resourceSpans"]
    assert [len(group["scopeSpans"]) for group in groups] == [2, 2]
    for group, expected_group in zip(groups, sent.expected.resource_spans, strict=True):
        assert group["schemaUrl"] == expected_group.schema_url
        for part, expected_part in zip(group["scopeSpans"], expected_group.scope_spans, strict=True):
            assert part["scope"]["name"] == expected_part.scope.name
            for span, expected in zip(part["spans"], expected_part.spans, strict=True):
                assert span["traceId"] == TRACE.hex()
                assert span["parentSpanId"] == expected.parent_span_id.hex()
                assert span["startTimeUnixNano"] == str(expected.start_time_unix_nano)
                assert span["endTimeUnixNano"] == str(expected.end_time_unix_nano)
                assert span["kind"] == expected.kind
                assert span["status"] == {"code": expected.status.code, "message": expected.status.message}
                assert span["flags"] == expected.flags
                assert [item["value"] for item in span["attributes"]] == [
                    {"stringValue": text} for _, text in TYPED
                ]
                assert span["events"][0]["timeUnixNano"] == str(expected.events[0].time_unix_nano)
                assert span["links"][0]["spanId"] == expected.links[0].span_id.hex()


def test_json_answer_is_accepted_by_the_receiver_and_has_the_same_spans(sent: Sent) -> None:
    body = b"".join(trace_otlp(sent.store, TRACE.hex(), OtlpFormat.JSON))
    delivery = Delivery("d", body, ContentKind.JSON, (), NOW_NS, strict=True, body_bytes_max=1 << 20)
    policy = transcode.policy(Settings(journal=limits(codec="lz4")))

    committed = transcode.commit(policy, [delivery], SegmentId(1, 1), DIGEST_KEY)

    (outcome,) = committed.outcomes
    assert (outcome.verdict, outcome.stored) == ("accepted", 4 * SPANS_EACH)


def test_group_of_many_spans_is_divided_and_complete(sent: Sent) -> None:
    many = 2 * PART_SPANS + 1
    spans = [{"TraceId": "ab" * 16, "SpanId": f"{n:016x}", "start_ns": NOW_NS} for n in range(many)]
    insert(sent.store, spans)

    answer = TracesData.FromString(b"".join(trace_otlp(sent.store, "ab" * 16, OtlpFormat.PROTOBUF)))

    parts = [len(part.spans) for group in answer.resource_spans for part in group.scope_spans]
    assert parts == [PART_SPANS, PART_SPANS, 1]


def test_trace_over_the_limit_is_an_error_in_otlp_and_cut_in_lines(sent: Sent) -> None:
    count = 4 * SPANS_EACH
    whole = b"".join(trace_otlp(sent.store, TRACE.hex(), OtlpFormat.JSON, count))
    lines = trace(sent.store, TRACE.hex(), 2 * count - 1)

    with pytest.raises(MalformedBody, match=f"over {count - 1} spans"):
        list(trace_otlp(sent.store, TRACE.hex(), OtlpFormat.JSON, count - 1))
    assert whole.count(b'"spanId"') == 2 * count  # each span has a link
    assert b"".join(lines.pieces()).count(b"\n") == 2 * count - 1
    assert lines.is_cut


def test_trace_with_exactly_the_limit_is_not_cut(sent: Sent) -> None:
    lines = trace(sent.store, TRACE.hex(), 8 * SPANS_EACH)

    assert b"".join(lines.pieces()).count(b"\n") == 8 * SPANS_EACH
    assert not lines.is_cut


@pytest.mark.parametrize("form", list(OtlpFormat))
def test_unknown_trace_has_no_pieces(sent: Sent, form: OtlpFormat) -> None:
    assert list(trace_otlp(sent.store, "0" * 31 + "9", form)) == []
