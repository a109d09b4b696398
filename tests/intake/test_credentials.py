"""Credentials: who gets in, who is told 401, who 403, and what is read for them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

import pytest

from receiver.intake.credentials import Credentials
from receiver.settings import MIB, Drain
from tests.support.intake import SPAN_BODY, on_uvloop, request, running

SECRET = "s3cret"
LARGE = b"\n" + bytes(1 * MIB)


def signature(body: bytes, secret: str = SECRET, algorithm: str = "sha1") -> str:
    return hmac.new(secret.encode(), body, algorithm).hexdigest()


SIGNED = Drain(name="signed", signature_header="x-platform-signature", signature_secrets=(SECRET, "old"))


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        pytest.param("authorization", "Bearer one", 200, id="the first token"),
        pytest.param("authorization", "bearer  two ", 200, id="the second, scheme in any case"),
        pytest.param("authorization", "Bearer three", 401, id="unknown"),
        pytest.param("authorization", "Bearer on", 401, id="a prefix"),
        pytest.param("authorization", "Basic one", 401, id="another scheme"),
        pytest.param("authorization", "one", 401, id="no scheme"),
        pytest.param("authorization", "Bearer \udcc3\udca9", 401, id="not ASCII"),
        pytest.param("authorization", "Bearer \udcff", 401, id="not UTF-8"),
        pytest.param("authorization", "Bearer", 401, id="no token"),
        pytest.param("x-api-key", "one", 401, id="another header"),
    ],
)
@on_uvloop
async def test_a_bearer_token_opens_the_drain(header: str, value: str, status: int) -> None:
    async with running(Drain(name="d", tokens=("one", "two"))) as intake:
        answer = await intake.exchange(request(SPAN_BODY, "/v1/traces", "POST", **{header: value}))

    assert answer.status == status
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert len(intake.core.groups) == (status == 200)


@pytest.mark.parametrize(("value", "status"), [("k", 200), ("Bearer k", 401), ("", 401)])
@on_uvloop
async def test_another_header_holds_the_bare_token(value: str, status: int) -> None:
    async with running(Drain(name="d", header="X-Api-Key", tokens=("k",))) as intake:
        assert (await intake.post(x_api_key=value)).status == status


@on_uvloop
async def test_missing_and_unknown_tokens_get_the_same_answer() -> None:
    async with running(Drain(name="d", tokens=("one",))) as intake:
        missing, unknown = await intake.post(), await intake.post(authorization="Bearer two")

    assert missing.body == unknown.body
    assert missing.status == unknown.status == 401


@on_uvloop
async def test_a_token_of_another_path_is_known_but_not_allowed() -> None:
    async with running(Drain(name="a", tokens=("a",)), Drain(name="b", path="/b", tokens=("b",))) as intake:
        answer = await intake.post(path="/b", authorization="Bearer a")

    assert answer.status == 403


@on_uvloop
async def test_two_drains_at_one_path_are_told_apart_by_their_tokens() -> None:
    async with running(Drain(name="a", tokens=("a",)), Drain(name="b", tokens=("b",), strict=True)) as intake:
        await intake.post(authorization="Bearer b")
        await intake.post(authorization="Bearer a")

    assert [(one.drain, one.strict) for one in intake.core.deliveries] == [("b", True), ("a", False)]


@on_uvloop
async def test_two_drains_at_one_path_are_told_apart_by_their_signatures() -> None:
    other = Drain(name="other", signature_header="x-platform-signature", signature_secrets=("theirs",))
    async with running(SIGNED, other) as intake:
        await intake.post(x_platform_signature=signature(SPAN_BODY, "theirs"))

    assert [one.drain for one in intake.core.deliveries] == ["other"]


@pytest.mark.parametrize(
    ("value", "status"),
    [
        pytest.param(signature(SPAN_BODY), 200, id="right"),
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
async def test_a_signature_is_checked_over_the_raw_body(value: str, status: int) -> None:
    async with running(SIGNED) as intake:
        answer = await intake.post(x_platform_signature=value)

    assert answer.status == status
    assert len(intake.core.groups) == (status == 200)


@on_uvloop
async def test_sha256_is_another_algorithm() -> None:
    drain = Drain(name="d", signature_header="x-s", signature_secrets=(SECRET,), signature_algorithm="sha256")
    async with running(drain) as intake:
        answer = await intake.post(x_s=f"sha256={signature(SPAN_BODY, algorithm='sha256')}")

    assert answer.status == 200


@on_uvloop
async def test_a_large_body_is_verified_too() -> None:
    async with running(SIGNED) as intake:
        right = await intake.post(LARGE, x_platform_signature=signature(LARGE))
        wrong = await intake.post(LARGE, x_platform_signature=signature(LARGE + b"."))

    assert (right.status, wrong.status) == (200, 403)


@on_uvloop
async def test_a_token_and_a_signature_are_both_needed_where_both_are_asked_for() -> None:
    both = Drain(name="d", tokens=("t",), signature_header="x-s", signature_secrets=(SECRET,))
    async with running(both) as intake:
        right = await intake.post(authorization="Bearer t", x_s=signature(SPAN_BODY))
        unsigned = await intake.post(authorization="Bearer t")
        no_token = await intake.post(x_s=signature(SPAN_BODY))
        forged = await intake.post(authorization="Bearer t", x_s=signature(b"else"))

    assert [one.status for one in (right, unsigned, no_token, forged)] == [200, 401, 401, 403]


@on_uvloop
async def test_missing_signature_is_answered_like_a_token_of_another_path() -> None:
    both = Drain(name="d", tokens=("t",), signature_header="x-s", signature_secrets=(SECRET,))
    async with running(both, Drain(name="e", path="/e", tokens=("t", "e"))) as intake:
        unsigned = await intake.post(authorization="Bearer t")
        of_another_path = await intake.post(authorization="Bearer e")
        nothing = await intake.post()
    async with running(both) as intake:
        unsigned_alone = await intake.post(authorization="Bearer t")

    assert (unsigned.status, of_another_path.status) == (403, 403)
    assert unsigned.body == of_another_path.body
    assert b"no drain at this path accepts them" in unsigned.body
    assert (unsigned_alone.status, nothing.status) == (401, 401)
    assert unsigned_alone.body == nothing.body
    assert b"credentials are missing, unknown or incomplete;" in nothing.body


@on_uvloop
async def test_credentials_are_checked_before_the_body() -> None:
    async with running(Drain(name="d", tokens=("t",))) as intake:
        answer = await intake.post(content_type="text/plain", content_encoding="br", content_length="9" * 12)

    assert answer.status == 401


@on_uvloop
async def test_a_large_body_with_a_wrong_token_is_answered_and_not_read() -> None:
    head = request(b"", authorization="Bearer no", content_length=str(64 * MIB))
    async with running(Drain(name="d", tokens=("t",))) as intake:
        connection = await intake.connect()
        connection.writer.write(head)
        answer = await connection.answer()
        (protocol,) = intake.server.connections
        connection.writer.write(bytes(64 * MIB))
        await asyncio.wait([asyncio.ensure_future(connection.closed())], timeout=5)

    assert (answer.status, answer.headers["connection"]) == (401, "close")
    assert protocol._discarded_bytes < 256 * 1024  # type: ignore[attr-defined]  # noqa: SLF001 - what is claimed


@on_uvloop
async def test_no_secret_is_in_any_answer() -> None:
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

    assert [one.drain for one in intake.core.deliveries] == ["open", "signed", "known", "all"]


def test_every_secret_is_compared_even_after_a_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def compare_and_tell(presented: bytes, known: bytes) -> bool:
        compared.append(known)
        return compare(presented, known)

    monkeypatch.setattr(hmac, "compare_digest", compare_and_tell)
    drain = Drain(name="d", tokens=("a", "b", "c"), signature_header="x-s", signature_secrets=("s", "t"))
    headers = {drain.header: "Bearer a", "x-s": signature(SPAN_BODY, "s")}

    found = Credentials(drain)

    assert found.has_valid_token(headers)
    assert found.verify(headers, SPAN_BODY)
    assert len(set(compared)) == len(compared) == 5
