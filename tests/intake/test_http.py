"""Tests of HTTP and OTLP/HTTP over raw sockets, including the conformance cases."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from receiver.settings import Drain
from tests.support.cases import each_case
from tests.support.intake import SPAN_BODY, Answer, on_uvloop, request, running, until

CASES_FILE = Path(__file__).parents[1] / "conformance/http.jsonl"
CASES = [json.loads(line) for line in CASES_FILE.read_text().splitlines()]


def raw_request(case: dict[str, Any]) -> bytes:
    encoded = case["request"]
    if "base64" in encoded:
        return base64.b64decode(encoded["base64"])
    return zlib.decompress(base64.b64decode(encoded["zlib_base64"]))


def is_status(answer: Answer) -> bool:
    return answer.headers["content-type"] == "application/x-protobuf" or "code" in json.loads(answer.body)


@each_case("case", CASES, ids=[case["id"] for case in CASES])
@on_uvloop
async def test_conformance_request_gets_its_expected_answer(case: dict[str, Any]) -> None:
    expected = case["expect"]["answer"].replace("close", "400").replace("100,200", "200")
    statuses = {int(word) for word in expected.replace("/", " ").replace("or", " ").replace(",", " ").split()}
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(raw_request(case))

        answer = await connection.answer(bodyless="HEAD" in case["id"])

        assert answer.status in statuses
        if answer.status >= 400 and "HEAD" not in case["id"]:
            assert is_status(answer)
        if case["expect"]["effect"] == "close" or answer.status in {400, 414, 417, 431, 505}:
            closes = answer.headers.get("connection") == "close"
            assert closes or answer.body == b"" or b"not one well-formed" in answer.body
        assert ("100 Continue" in answer.raw.decode("latin-1")) == (
            "100" in case["expect"]["answer"].split(",")
        )


@on_uvloop
async def test_answer_to_a_delivery_has_exactly_these_headers() -> None:
    async with running() as intake:
        answer = await intake.post()

    assert answer.status == 200
    assert answer.body == b""
    assert set(answer.headers) == {"content-type", "content-length", "date"}
    assert answer.headers["content-type"] == "application/x-protobuf"
    assert [record for _, record, _ in intake.appender.appended] == [b"0:" + SPAN_BODY]


@on_uvloop
async def test_json_delivery_is_answered_with_an_empty_object() -> None:
    async with running() as intake:
        answer = await intake.post(b"{}", content_type='Application/JSON; charset="UTF-8"')

    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"{}\n", "application/json")


@each_case("alias", ["/v1/traces", "/v1/traces/", "/", "/v1/traces?token=1", "http://h/v1/traces"])
@on_uvloop
async def test_alias_of_the_path_is_answered_without_a_redirect(alias: str) -> None:
    async with running() as intake:
        assert (await intake.post(path=alias)).status == 200


@each_case(
    ("path", "hint"),
    [
        ("/V1/TRACES", "expected '/v1/traces'"),
        ("//v1/traces", "expected '/v1/traces'"),
        ("/v1/./traces", "expected '/v1/traces'"),
        ("/v1%2Ftraces", "expected '/v1/traces'"),
        ("/v1/metrics", "accepts only traces"),
        ("/v1/logs", "accepts only traces"),
        ("/v1/traces/v1/metrics", "accepts only traces"),
        ("/v1/traces/v1/traces", "appended '/v1/traces' to a URL that already has its path"),
        ("/v1/traces/v1/traces/", "expected '/v1/traces': set the URL without it"),
        ("/v1/trace", "no drain at this path; did you mean '/v1/traces'?"),
        ("/v1/tarces", "did you mean '/v1/traces'?"),
        ("/traces", "did you mean '/v1/traces'?"),
        ("/otlp/v1/traces", "did you mean '/v1/traces'?"),
        ("/elsewhere-marker", "no drain at this path; expected"),
    ],
)
@on_uvloop
async def test_path_that_nearly_matches_gets_a_hint(path: str, hint: str) -> None:
    async with running() as intake:
        answer = await intake.post(path=path, content_type="application/json")

    status = json.loads(answer.body)
    assert (answer.status, status["code"]) == (404, 5)
    assert hint in status["message"]
    assert b"marker" not in answer.raw


@each_case("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"])
@on_uvloop
async def test_other_methods_get_405_with_the_allowed_methods(method: str) -> None:
    async with running() as intake:
        answer = await intake.exchange(request(b"", method=method, x_marker="echo me"))

    assert answer.status == 405
    assert answer.headers["allow"] == "POST, OPTIONS"
    assert b"echo me" not in answer.raw
    assert (answer.headers.get("connection") == "close") == (method == "CONNECT")


@each_case(
    ("method", "path", "status"),
    [
        pytest.param("BREW", "/v1/traces", 405, id="not an HTTP method"),
        pytest.param("post", "/v1/traces?a=marker", 405, id="lower case"),
        pytest.param("BREW", "/marker", 404, id="unknown path"),
        pytest.param("POST\x01", "/v1/traces", 400, id="not HTTP at all"),
        pytest.param("BREW", "/v1/marker\xff", 400, id="invalid path"),
    ],
)
@on_uvloop
async def test_unknown_method_gets_405_with_the_allowed_methods(method: str, path: str, status: int) -> None:
    async with running() as intake:
        connection = await intake.connect()
        answer = await connection.exchange(request(b"x" * 100, path=path, method=method))
        end = await connection.closed()

    assert (answer.status, answer.headers["connection"], end) == (status, "close", b"")
    assert answer.headers.get("allow") == ("POST, OPTIONS" if status == 405 else None)
    assert b"marker" not in answer.raw


@on_uvloop
async def test_head_request_is_answered_without_a_body() -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(request(b"", method="HEAD") + request())
        head, after = await connection.answer(bodyless=True), await connection.answer()

    assert (head.status, head.body, after.status) == (405, b"", 200)


@each_case("target", ["/v1/traces", "*"])
@on_uvloop
async def test_options_lists_allowed_methods_and_no_cors_headers(target: str) -> None:
    async with running() as intake:
        answer = await intake.exchange(request(b"", target, "OPTIONS", origin="https://a.example"))

    assert (answer.status, answer.headers["allow"]) == (204, "POST, OPTIONS")
    assert not any(name.startswith("access-control") for name in answer.headers)


@each_case(
    "content_type",
    ["application/protobuf", "application/x-google-protobuf", "application/vnd.google.protobuf; proto=x"],
)
@on_uvloop
async def test_alternative_protobuf_content_types_are_answered_as_x_protobuf(content_type: str) -> None:
    async with running() as intake:
        answer = await intake.post(content_type=content_type)

    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-protobuf")


@each_case(
    ("content_type", "hint"),
    [
        ("", "content type is missing"),
        ("Text/Plain; charset=utf-8", "'text/plain' is not supported; expected application/x-protobuf"),
        (
            "application/x-www-form-urlencoded",
            "'application/x-www-form-urlencoded' is not supported; expected",
        ),
        ("application/x-s3cret", "content type is not supported; expected"),
        ("application/grpc+proto", "http/protobuf"),
        ("application/json; charset=utf-16", "charset"),
        ("application/json\xff", "not ASCII"),
    ],
)
@on_uvloop
async def test_unsupported_content_type_is_415(content_type: str, hint: str) -> None:
    async with running() as intake:
        answer = await intake.post(
            content_type=content_type.encode("latin-1").decode("utf-8", "surrogateescape")
        )

    assert answer.status == 415
    assert hint in json.loads(answer.body)["message"]
    assert intake.core.groups == []


@each_case(
    ("header", "encodings"),
    [
        ("GZIP", ("gzip",)),
        ("x-gzip", ("gzip",)),
        ("identity", ()),
        (" ", ()),
        ("deflate, identity , zstd", ("deflate", "zstd")),
    ],
)
@on_uvloop
async def test_content_codings_are_parsed_in_order_and_in_any_case(
    header: str, encodings: tuple[str, ...]
) -> None:
    async with running() as intake:
        await intake.post(content_encoding=header)

    assert [delivery.encodings for delivery in intake.core.deliveries] == [encodings]


@each_case("header", ["br", "gzip, br", "gzip, gzip, gzip", "compress\xff"])
@on_uvloop
async def test_unsupported_content_coding_is_415_with_the_supported_codings(header: str) -> None:
    async with running() as intake:
        answer = await intake.post(content_encoding=header)

    assert answer.status == 415
    assert answer.headers["accept-encoding"] == "gzip, zstd, deflate, snappy, lz4"
    assert answer.headers["content-type"] == "application/x-protobuf"


@on_uvloop
async def test_request_without_length_or_chunks_has_an_empty_body_and_succeeds() -> None:
    async with running() as intake:
        answer = await intake.post(b"", content_length="")

    assert (answer.status, answer.body) == (200, b"")


@on_uvloop
async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(
            request() + request(path="/nowhere") + request(b"{}", content_type="application/json")
        )
        answers = [await connection.answer() for _ in range(3)]

    assert [(answer.status, answer.body[:2]) for answer in answers] == [
        (200, b""),
        (404, answers[1].body[:2]),
        (200, b"{}"),
    ]


@on_uvloop
async def test_chunks_with_extensions_and_trailers_are_read() -> None:
    chunked = (
        request(b"", content_length="", transfer_encoding="chunked")
        + b"3;a=b\r\n\n\x05s\r\n4\r\npans\r\n0\r\nX-T: 1\r\n\r\n"
    )
    async with running() as intake:
        answer = await intake.exchange(chunked)

    assert answer.status == 200
    assert [delivery.body for delivery in intake.core.deliveries] == [SPAN_BODY]


@each_case(
    "coding",
    [
        pytest.param("gzip, chunked", id="compression and chunked"),
        pytest.param("identity, chunked", id="two codings"),
    ],
)
@on_uvloop
async def test_transfer_coding_other_than_chunked_is_400_and_closes(coding: str) -> None:
    async with running() as intake:
        answer = await intake.exchange(
            request(b"", content_length="", transfer_encoding=coding) + b"0\r\n\r\n"
        )

    assert (answer.status, answer.headers["connection"]) == (400, "close")


@on_uvloop
async def test_invalid_chunk_is_400_and_closes_and_stores_nothing() -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(
            request(b"", content_length="", transfer_encoding="chunked") + b"3\r\n\n\x05s\r\n"
        )
        await until(lambda: intake.admission.bytes_in_flight)
        answer = await connection.exchange(b"junk marker\r\n")
        await connection.closed()

    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert b"marker" not in answer.raw
    assert intake.core.groups == []


@each_case("expectation", ["202-accepted", "100-continue, x"])
@on_uvloop
async def test_unsupported_expectation_is_417(expectation: str) -> None:
    async with running() as intake:
        answer = await intake.post(expect=expectation)

    assert (answer.status, answer.headers["connection"]) == (417, "close")


@each_case(
    ("headers", "status"),
    [
        ({"authorization": "Bearer no"}, 401),
        ({"authorization": "Bearer t", "content_length": "99999999999"}, 413),
    ],
)
@on_uvloop
async def test_100_continue_is_sent_only_if_the_body_will_be_read(
    headers: dict[str, str], status: int
) -> None:
    async with running(Drain(name="d", tokens=("t",))) as intake:
        answer = await intake.post(b"", **{"content_length": "5", "expect": "100-continue", **headers})

    assert answer.status == status
    assert b"100 Continue" not in answer.raw


@on_uvloop
async def test_half_closed_connection_still_gets_its_answer() -> None:
    async with running() as intake:
        connection = await intake.connect()
        connection.writer.write(request())
        connection.writer.write_eof()
        answer = await connection.answer()
        rest = await connection.closed()

    assert (answer.status, answer.headers["connection"], rest) == (200, "close", b"")


@on_uvloop
async def test_upgrade_is_ignored_and_the_connection_is_closed() -> None:
    async with running() as intake:
        answer = await intake.post(connection="Upgrade", upgrade="websocket")

    assert (answer.status, answer.headers["connection"]) == (200, "close")


@on_uvloop
async def test_verification_header_is_on_every_answer_at_its_path() -> None:
    drain = Drain(name="d", tokens=("t",), verify_header="abc123")
    async with running(drain) as intake:
        refused, options = await intake.post(), await intake.exchange(request(b"", method="OPTIONS"))
        other_path = await intake.post(path="/nowhere")

    assert (refused.status, refused.headers["x-vercel-verify"]) == (401, "abc123")
    assert options.headers["x-vercel-verify"] == "abc123"
    assert "x-vercel-verify" not in other_path.headers
