"""Tests of answers: every error has an answer in both encodings, of limited size, without unsafe text."""

from __future__ import annotations

import json

from google.rpc.error_details_pb2 import BadRequest  # type: ignore[import-untyped]  # it ships no types
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # as above
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from receiver import errors
from receiver.errors import ANSWER_OF, MalformedBody, OperatorError, ReceiverError, Refused, Unavailable
from receiver.intake import answers
from receiver.model import ContentKind
from tests.support.cases import each_case

RETRYABLE = {429, 502, 503, 504}
PROTOBUF, JSON = ContentKind.PROTOBUF, ContentKind.JSON


def error_classes(root: type[ReceiverError]) -> list[type[ReceiverError]]:
    leaves = [leaf for child in root.__subclasses__() for leaf in error_classes(child)]
    return leaves or [root]


NEVER_SENT = {
    *(errors.CallerBusy, errors.InvalidFilter, errors.InvalidStatement, errors.LimitExceeded),
    *(errors.DeadLetterConflict, errors.InstallationFailed, errors.InstallationRefused),
    *(errors.NoSuchDeadLetter, errors.NoSuchDeployment, errors.NoSuchProject, errors.NoSuchTrace),
    errors.NoSuchView,
    *(errors.NotConfigured, errors.QueueFull, errors.StaleSegment),
}
VERDICTS = [
    leaf
    for leaf in error_classes(ReceiverError)
    if not issubclass(leaf, OperatorError) and leaf.__module__ == errors.__name__ and leaf not in NEVER_SENT
]


def header_lines(reply: answers.Reply) -> list[str]:
    return reply.head.decode().split("\r\n")


def test_every_error_has_an_answer() -> None:
    assert set(VERDICTS) == set(ANSWER_OF)


@each_case("leaf", VERDICTS)
def test_only_unavailable_maps_to_a_status_that_senders_retry_in_two_seconds(
    leaf: type[ReceiverError],
) -> None:
    is_retried = "Retry-After: 2" in header_lines(answers.verdict(leaf("later"), JSON))

    assert issubclass(leaf, Unavailable) == (ANSWER_OF[leaf].status in RETRYABLE) == is_retried
    assert issubclass(leaf, Unavailable) != issubclass(leaf, Refused)


@each_case("leaf", VERDICTS)
def test_error_is_answered_with_a_status_in_the_encoding_of_the_request(leaf: type[ReceiverError]) -> None:
    protobuf, text = (answers.verdict(leaf("journal is full"), kind) for kind in (PROTOBUF, JSON))

    status, decoded = Status.FromString(protobuf.body), json.loads(text.body)
    assert (status.code, status.message) == (ANSWER_OF[leaf].grpc_code, "journal is full")
    assert (decoded["code"], decoded["message"]) == (status.code, status.message)
    assert "Content-Type: application/x-protobuf" in header_lines(protobuf)
    assert "Content-Type: application/json" in header_lines(text)


@each_case("status", answers.HTTP_GRPC_CODE_OF)
def test_json_error_ends_with_a_newline_included_in_its_length(status: int) -> None:
    reply = answers.http_refusal(status, "not HTTP")

    assert reply.body.endswith(b"}\n")
    assert f"Content-Length: {len(reply.body)}" in header_lines(reply)


def test_answer_to_a_malformed_body_names_the_field_in_both_encodings() -> None:
    reason = MalformedBody("no valid span", field="resource_spans")

    status = Status.FromString(answers.verdict(reason, PROTOBUF).body)
    (detail,) = json.loads(answers.verdict(reason, JSON).body)["details"]

    violations = BadRequest()
    assert status.details[0].Unpack(violations)
    assert [(violation.field, violation.description) for violation in violations.field_violations] == [
        ("resource_spans", "no valid span")
    ]
    assert detail["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert detail["fieldViolations"] == [{"field": "resource_spans", "description": "no valid span"}]


def test_full_success_has_an_unset_partial_success() -> None:
    replies = {kind: answers.accepted(kind, rejected_span_count=0, message="").body for kind in ContentKind}

    assert replies == {PROTOBUF: b"", JSON: b"{}\n", ContentKind.NDJSON: b"{}\n"}


@each_case(("rejected", "message"), [(300, "300 spans have no trace id"), (0, "kind was sent by name")])
def test_rejections_and_warnings_are_reported_in_both_encodings(rejected: int, message: str) -> None:
    protobuf = answers.accepted(PROTOBUF, rejected_span_count=rejected, message=message)
    text = answers.accepted(JSON, rejected_span_count=rejected, message=message)

    partial = ExportTraceServiceResponse.FromString(protobuf.body).partial_success
    decoded = json.loads(text.body)["partialSuccess"]
    assert text.body.endswith(b"}\n")
    assert (partial.rejected_spans, partial.error_message) == (rejected, message)
    assert (int(decoded.get("rejectedSpans", 0)), decoded["errorMessage"]) == (rejected, message)


@each_case("kind", list(ContentKind))
def test_answer_stays_under_16_kib_for_any_message(kind: ContentKind) -> None:
    message = '"\\\x00\N{SNOWMAN}' * 100_000

    assert len(answers.accepted(kind, rejected_span_count=1, message=message).body) < 16 * 1024
    assert len(answers.verdict(MalformedBody(message), kind).body) < 2 * 16 * 1024


def test_message_in_an_answer_is_printable_ascii() -> None:
    body = answers.verdict(MalformedBody("a\r\nb\x1b[31m\N{SNOWMAN}"), PROTOBUF).body

    assert Status.FromString(body).message == "a??b?[31m?"


def test_date_header_is_formatted_once_per_second() -> None:
    assert answers.date_line(0) == b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
    assert answers.date_line(0) is answers.date_line(0)
    assert answers.date_line(1) == b"Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n"
