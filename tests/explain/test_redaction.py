"""Redaction: which texts are replaced, and that a secret survives in no form of a row."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.explain.redaction import REDACTED, Redactor
from receiver.settings import Explain

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(Explain())


@pytest.mark.parametrize(
    "key",
    [
        *("authorization", "http.request.header.authorization", "Cookie", "set-cookie", "http.cookies"),
        *("token", "access_token", "refreshToken", "csrf-token", "password", "user.passwd", "PGPASSWORD"),
        *("client_secret", "api_key", "apikey", "x-api-key", "API KEY", "private_key", "aws.credentials"),
        *("session.id", "PHPSESSION", "x-hub-signature", "ssh.passphrase"),
    ],
)
def test_value_of_a_secret_key_is_replaced(redactor: Redactor, key: str) -> None:
    assert redactor.value({key: "plain"}) == {key: REDACTED}
    assert redactor.value({"a": [{key: {"inner": 1}}]}) == {"a": [{key: REDACTED}]}


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Basic dXNlcjpwYXNz",
        "GET /cart?access_token=abc",
        '{"password": "hunter2"}',
        r'sent {"body": "{\"password\": \"hunter2\"}"}',
        r'{"a": "{\"b\": \"{\\\"password\\\":\\\"hunter2\\\"}\"}"}',
        "/login?next=%2Fcart%3Faccess_token%3Dhunter2",
        "/cart?state=%7B%22client_secret%22%3a%22hunter2%22%7D",
        "login failed with password=hunter2",
        f"jwt {JWT}",
        "postgres://app:hunter2@db/shop",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "key AKIAIOSFODNN7EXAMPLE",
        "used sk-proj-0123456789abcdefghij",
        "ghp_0123456789abcdefghijABCDEFGHIJ",
        "cookie: sid=1",
        "Bearer 0123456789abcdef",
    ],
)
def test_text_with_a_secret_is_replaced_as_a_whole(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == REDACTED
    assert redactor.value({"exception.message": [text]}) == {"exception.message": [REDACTED]}
    assert list(redactor.value({text: 1})) == [REDACTED]


@pytest.mark.parametrize(
    "text",
    [
        "GET /cart",
        "deadlock on row 7",
        "SELECT * FROM cart WHERE id = ?",
        "https://shop/cart?page=2",
        "x" * 9_000,
    ],
)
def test_ordinary_text_is_kept(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text


def test_value_beside_the_name_of_a_secret_key_is_replaced(redactor: Redactor) -> None:
    row: dict[str, Any] = {"scope": "span", "key": "http.request.header.cookie", "value": "a=1", "share": 0.5}

    assert redactor.value(row) == {**row, "value": REDACTED}
    assert redactor.value({**row, "key": "http.route"}) == {**row, "key": "http.route"}


def test_settings_replace_the_rules() -> None:
    redactor = Redactor(Explain(redact_keys=("tenant",), redact_patterns=(r"\d{13,16}",)))

    assert redactor.value({"tenant.name": "acme", "token": "t"}) == {"tenant.name": REDACTED, "token": "t"}
    assert redactor.text("card 4111111111111111") == REDACTED
