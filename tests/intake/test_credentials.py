"""Tests of credentials: tokens and signatures, 401 and 403, and reading only authorized bodies."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

import pytest

from receiver.intake.credentials import Credentials
from receiver.settings import MIB, Drain
from tests.support.cases import each_case
from tests.support.intake import SPAN_BODY, on_uvloop, request, running

SECRET = "s3cret"
LARGE = b"\n" + bytes(1 * MIB)


def signature(body: bytes, secret: str = SECRET, algorithm: str = "sha1") -> str:
    return hmac.new(secret.encode(), body, algorithm).hexdigest()


SIGNED = Drain(name="signed", signature_header="x-platform-signature", signature_secrets=(SECRET, "old"))


@each_case(
    ("header", "value", "status"),
    [
        pytest.param("authorization", "Bearer one", 200, id="the first token"),
        pytest.param("authorization", "bearer  two ", 200, id="the second token, scheme in any case"),
        pytest.param("authorization", "Bearer three", 401, id="unknown token"),
        pytest.param("authorization", "Bearer on", 401, id="prefix of a token"),
        pytest.param("authorization", "Basic one", 401, id="another scheme"),
        pytest.param("authorization", "one", 401, id="no scheme"),
        pytest.param("authorization", "Bearer \udcc3\udca9", 401, id="not ASCII"),
        pytest.param("authorization", "Bearer \udcff", 401, id="not UTF-8"),
        pytest.param("authorization", "Bearer", 401, id="no token"),
        pytest.param("x-api-key", "one", 401, id="another header"),
    ],
)
@on_uvloop
async def test_bearer_token_is_checked(header: str, value: str, status: int) -> None:
    async with running(Drain(name="d", tokens=("one", "two"))) as intake:
        answer = await intake.exchange(request(SPAN_BODY, "/v1/traces", "POST", **{header: value}))

    assert answer.status == status
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert len(intake.core.groups) == (status == 200)


@each_case(("value", "status"), [("k", 200), ("Bearer k", 401), ("", 401)])
@on_uvloop
async def test_token_in_a_configured_header_has_no_scheme(value: str, status: int) -> None:
    async with running(Drain(name="d", header="X-Api-Key", tokens=("k",))) as intake:
        assert (await intake.post(x_api_key=value)).status == status


@on_uvloop
async def test_missing_and_unknown_tokens_get_the_same_answer() -> None:
    async with running(Drain(name="d", tokens=("one",))) as intake:
        missing, unknown = await intake.post(), await intake.post(authorization="Bearer two")

    assert missing.body == unknown.body
    assert missing.status == unknown.status == 401


@on_uvloop
async def test_drains_with_the_same_path_are_distinguished_by_token() -> None:
    async with running(Drain(name="a", tokens=("a",)), Drain(name="b", tokens=("b",), strict=True)) as intake:
        await intake.post(authorization="Bearer b")
        await intake.post(authorization="Bearer a")

    assert [(delivery.drain, delivery.strict) for delivery in intake.core.deliveries] == [
        ("b", True),
        ("a", False),
    ]


@on_uvloop
async def test_drains_with_the_same_path_are_distinguished_by_signature() -> None:
    other = Drain(name="other", signature_header="x-platform-signature", signature_secrets=("theirs",))
    async with running(SIGNED, other) as intake:
        await intake.post(x_platform_signature=signature(SPAN_BODY, "theirs"))

    assert [delivery.drain for delivery in intake.core.deliveries] == ["other"]


@each_case(
    ("value", "status"),
    [
        pytest.param(signature(SPAN_BODY), 200, id="correct"),
        pytest.param(signature(SPAN_BODY).upper(), 200, id="upper case"),
        pytest.param(f"sha1={signature(SPAN_BODY)}", 200, id="with its algorithm"),
        pytest.param(f"SHA1={signature(SPAN_BODY)}", 200, id="with its algorithm in upper case"),
        pytest.param(signature(SPAN_BODY, "old"), 200, id="an older secret"),
        pytest.param("", 401, id="missing"),
        pytest.param(signature(SPAN_BODY, "no"), 403, id="another secret"),
        pytest.param(signature(SPAN_BODY + b"x"), 403, id="another body"),
        pytest.param(signature(SPAN_BODY)[:-1], 403, id="odd length"),
        pytest.param("z" * 40, 403, id="not hex"),
        pytest.param(
            " ".join(signature(SPAN_BODY)[i : i + 2] for i in range(0, 40, 2)), 403, id="spaced hex"
        ),
        pytest.param(f"{int(signature(SPAN_BODY), 16) ^ 1:040x}", 403, id="one bit flipped"),
        pytest.param(f"sha256={signature(SPAN_BODY, algorithm='sha256')}", 403, id="another algorithm"),
        pytest.param("\udcff" * 40, 403, id="not ASCII"),
    ],
)
@on_uvloop
async def test_signature_of_the_raw_body_is_checked(value: str, status: int) -> None:
    async with running(SIGNED) as intake:
        answer = await intake.post(x_platform_signature=value)

    assert answer.status == status
    assert len(intake.core.groups) == (status == 200)


@on_uvloop
async def test_sha256_signature_is_accepted_if_configured() -> None:
    drain = Drain(name="d", signature_header="x-s", signature_secrets=(SECRET,), signature_algorithm="sha256")
    async with running(drain) as intake:
        answer = await intake.post(x_s=f"sha256={signature(SPAN_BODY, algorithm='sha256')}")

    assert answer.status == 200


@on_uvloop
async def test_signature_of_a_large_body_is_checked() -> None:
    async with running(SIGNED) as intake:
        correct = await intake.post(LARGE, x_platform_signature=signature(LARGE))
        wrong = await intake.post(LARGE, x_platform_signature=signature(LARGE + b"."))

    assert (correct.status, wrong.status) == (200, 403)


@on_uvloop
async def test_drain_with_token_and_signature_requires_both() -> None:
    both = Drain(name="d", tokens=("t",), signature_header="x-s", signature_secrets=(SECRET,))
    async with running(both) as intake:
        correct = await intake.post(authorization="Bearer t", x_s=signature(SPAN_BODY))
        unsigned = await intake.post(authorization="Bearer t")
        no_token = await intake.post(x_s=signature(SPAN_BODY))
        forged = await intake.post(authorization="Bearer t", x_s=signature(b"else"))

    assert [answer.status for answer in (correct, unsigned, no_token, forged)] == [200, 401, 401, 403]


@on_uvloop
async def test_missing_signature_is_answered_like_a_token_of_another_path() -> None:
    both = Drain(name="d", tokens=("t",), signature_header="x-s", signature_secrets=(SECRET,))
    async with running(both, Drain(name="e", path="/e", tokens=("t", "e"))) as intake:
        unsigned = await intake.post(authorization="Bearer t")
        at_another_path = await intake.post(authorization="Bearer e")
        nothing = await intake.post()
    async with running(both) as intake:
        without_signature = await intake.post(authorization="Bearer t")

    assert (unsigned.status, at_another_path.status) == (403, 403)
    assert unsigned.body == at_another_path.body
    assert b"no drain at this path accepts them" in unsigned.body
    assert (without_signature.status, nothing.status) == (401, 401)
    assert without_signature.body == nothing.body
    assert b"credentials are missing, unknown or incomplete;" in nothing.body


@on_uvloop
async def test_credentials_are_checked_before_the_body() -> None:
    async with running(Drain(name="d", tokens=("t",))) as intake:
        answer = await intake.post(content_type="text/plain", content_encoding="br", content_length="9" * 12)

    assert answer.status == 401


@on_uvloop
async def test_large_body_with_a_wrong_token_is_not_read() -> None:
    head = request(b"", authorization="Bearer no", content_length=str(64 * MIB))
    async with running(Drain(name="d", tokens=("t",))) as intake:
        connection = await intake.connect()
        answer = await connection.exchange(head)
        (protocol,) = intake.server.connections
        connection.writer.write(bytes(64 * MIB))
        await asyncio.wait([asyncio.ensure_future(connection.closed())], timeout=5)

    assert (answer.status, answer.headers["connection"]) == (401, "close")
    assert protocol._discarded_bytes < 256 * 1024  # noqa: SLF001 - the tested value


@on_uvloop
async def test_answers_contain_no_secret() -> None:
    async with running(Drain(name="d", tokens=("canary-token",)), SIGNED) as intake:
        replies = [
            await intake.post(authorization="Bearer canary-toke"),
            await intake.post(x_platform_signature=signature(b"else")),
        ]

    digest = hashlib.sha256(b"canary-token").hexdigest()
    for reply in replies:
        for secret in ("canary", SECRET, digest, signature(SPAN_BODY)):
            assert secret.encode() not in reply.raw


@on_uvloop
async def test_drain_that_requires_more_credentials_takes_precedence() -> None:
    signed = signature(SPAN_BODY)
    drains = (
        Drain(name="open"),
        Drain(name="signed", signature_header="x-s", signature_secrets=(SECRET,)),
        Drain(name="known", tokens=("t",)),
        Drain(name="all", tokens=("t",), signature_header="x-s", signature_secrets=(SECRET,)),
    )
    async with running(*drains) as intake:
        await intake.post()
        await intake.post(x_s=signed)
        await intake.post(authorization="Bearer t")
        await intake.post(authorization="Bearer t", x_s=signed)

    assert [delivery.drain for delivery in intake.core.deliveries] == ["open", "signed", "known", "all"]


def test_every_secret_is_compared_even_after_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def recording_compare(presented: bytes, known: bytes) -> bool:
        compared.append(known)
        return compare(presented, known)

    monkeypatch.setattr(hmac, "compare_digest", recording_compare)
    drain = Drain(name="d", tokens=("a", "b", "c"), signature_header="x-s", signature_secrets=("s", "t"))
    headers = {drain.header: "Bearer a", "x-s": signature(SPAN_BODY, "s")}

    credentials = Credentials(drain)

    assert credentials.has_valid_token(headers)
    assert credentials.verify(headers, SPAN_BODY)
    assert len(set(compared)) == len(compared) == 5


@each_case(
    ("drain", "line"),
    [
        (Drain(name="d", tokens=("one",)), b"Authorization: Bearer one\r\n"),
        (Drain(name="d", header="X-Api-Key", tokens=("one",)), b"x-api-key: one\r\n"),
        (SIGNED, b"x-platform-signature: " + signature(SPAN_BODY).encode() + b"\r\n"),
    ],
    ids=["bearer", "own header", "signature"],
)
@on_uvloop
async def test_repeated_credential_header_is_refused_also_after_an_accepted_head(
    drain: Drain, line: bytes
) -> None:
    once = request(SPAN_BODY).replace(b"\r\n", b"\r\n" + line, 1)
    twice = once.replace(line, line * 2)
    async with running(drain) as intake:
        connection = await intake.connect()
        statuses = []
        for each in (once, once, once, twice, once):
            connection.writer.write(each)
            statuses.append((await connection.answer()).status)

    assert statuses == [200, 200, 200, 401, 200]
