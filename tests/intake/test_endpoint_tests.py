"""Tests of endpoint tests: a platform's probe gets 200, a misconfigured exporter gets an error."""

from __future__ import annotations

import hmac

import pytest

from receiver.intake import answers
from receiver.settings import Drain
from tests.support.cases import each_case
from tests.support.intake import SPAN_BODY, AppenderDouble, on_uvloop, request, running

SIGNED = Drain(name="d", signature_header="x-sig", signature_secrets=("s",))
EMPTY_SIGNATURE = hmac.new(b"s", b"", "sha1").hexdigest()


@each_case(
    "headers",
    [
        pytest.param({"content_length": "", "content_type": ""}, id="no headers"),
        pytest.param({"content_length": "0", "content_type": ""}, id="empty body"),
        pytest.param({"content_type": "text/html"}, id="another content type"),
    ],
)
@each_case("method", ["GET", "HEAD"])
@each_case("path", ["/v1/traces", "/v1/traces/", "/"])
@on_uvloop
async def test_probe_without_credentials_gets_200(path: str, method: str, headers: dict[str, str]) -> None:
    async with running(Drain(name="named", tokens=("t",))) as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", path, method, **headers))
        answer = await connection.answer(bodyless=method == "HEAD")
        delivery = await connection.exchange(request(authorization="Bearer t"))

    assert (answer.status, delivery.status) == (200, 200)
    assert answer.body == (b"" if method == "HEAD" else answers.PROBE.body)
    assert answer.headers["content-length"] == str(len(answers.PROBE.body))
    assert b"named" not in answer.raw
    assert intake.counted("endpoint_tests", "named") == 1
    assert intake.counted("deliveries", "named") == 1


@each_case("method", ["GET", "HEAD"])
@each_case(
    ("body", "headers"),
    [
        pytest.param(b"", {"content_type": "application/x-protobuf"}, id="protobuf"),
        pytest.param(b"", {"content_type": "application/json; charset=utf-8"}, id="JSON"),
        pytest.param(b"x", {"content_type": ""}, id="body"),
        pytest.param(
            b"0\r\n\r\n",
            {"content_type": "", "content_length": "", "transfer_encoding": "chunked"},
            id="chunks",
        ),
    ],
)
@on_uvloop
async def test_exporter_with_the_wrong_method_is_refused(
    method: str, body: bytes, headers: dict[str, str]
) -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(request(body, method=method, **headers))
        answer = await connection.answer(bodyless=method == "HEAD")

    assert answer.status == 405
    assert intake.counted("endpoint_tests") == 0


@each_case("content_type", ["", "text/plain", "application/octet-stream"])
@each_case("content_length", ["", "0"])
@on_uvloop
async def test_empty_post_gets_200_and_is_not_a_delivery(content_type: str, content_length: str) -> None:
    async with running() as intake:
        answer = await intake.post(b"", content_type=content_type, content_length=content_length)

    assert (answer.status, answer.body) == (200, b"{}\n")
    assert intake.counted("endpoint_tests", "default") == 1
    assert intake.counted("deliveries") == 0
    assert intake.core.deliveries == []
    assert intake.admission.bytes_in_flight == 0


@each_case(("headers", "status"), [({"x_sig": EMPTY_SIGNATURE}, 200), ({}, 401), ({"x_sig": "0" * 40}, 403)])
@on_uvloop
async def test_empty_post_requires_the_credentials_of_the_drain(headers: dict[str, str], status: int) -> None:
    async with running(SIGNED) as intake:
        answer = await intake.post(b"", content_type="", **headers)

    assert answer.status == status
    assert intake.counted("endpoint_tests", "d") == (status == 200)
    assert intake.counted("deliveries", "d", str(status)) == (status != 200)


@on_uvloop
async def test_endpoint_test_succeeds_while_the_journal_is_full() -> None:
    async with running(appender=AppenderDouble(full="journal is full")) as intake:
        post = await intake.post(b"", content_type="")
        get = await intake.exchange(request(b"", method="GET", content_type=""))

    assert (post.status, get.status) == (200, 200)
    assert intake.counted("endpoint_tests", "default") == 2


@on_uvloop
async def test_empty_body_of_an_otlp_type_is_decoded() -> None:
    async with running() as intake:
        answer = await intake.post(b"", content_type="application/x-protobuf")

    assert answer.status == 200
    assert len(intake.core.deliveries) == 1
    assert intake.counted("endpoint_tests") == 0


@on_uvloop
async def test_endpoint_test_does_not_affect_later_requests() -> None:
    async with running() as intake:
        connection = await intake.connect()
        for raw in (
            request(b"", content_type="text/plain"),
            request(SPAN_BODY, content_type="text/plain"),
            request(b"", method="GET", content_type=""),
            request(),
            request(),
        ):
            connection.writer.write(raw)
        statuses = [(await connection.answer()).status for _ in range(5)]

    assert statuses == [200, 415, 200, 200, 200]
    assert len(intake.core.deliveries) == 2


@on_uvloop
async def test_answers_to_deliveries_and_endpoint_tests_have_the_verification_header() -> None:
    drain = Drain(name="d", verify_header="abc", verify_header_name="x-platform-verify")
    values = []
    async with running(drain) as intake:
        connection = await intake.connect()
        for raw in (
            request(),
            request(),
            request(b"", method="GET", content_type=""),
            request(b"", content_type=""),
        ):
            connection.writer.write(raw)
            values.append((await connection.answer()).headers["x-platform-verify"])

    assert values == ["abc"] * 4
