"""Redaction: which texts are replaced, and that a secret survives in no form of a row."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.platform.explain.redaction import Redactor, counted_marks, mark, rule_of_text
from receiver.settings import Explain
from tests.platform.explain.secret_corpus import SECRET_KEYS, harmless, secrets, tokens
from tests.support.cases import each_case

HIDDEN_KEY = mark("secret-key")
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(Explain())


@each_case(
    "key",
    [
        *("authorization", "http.request.header.authorization", "Cookie", "set-cookie", "http.cookies"),
        *("token", "access_token", "refreshToken", "csrf-token", "password", "user.passwd", "PGPASSWORD"),
        *("client_secret", "api_key", "apikey", "x-api-key", "API KEY", "private_key", "aws.credentials"),
        *("session.id", "PHPSESSION", "x-hub-signature", "ssh.passphrase"),
        *SECRET_KEYS,
    ],
)
def test_value_of_a_secret_key_is_replaced(redactor: Redactor, key: str) -> None:
    assert redactor.value({key: "plain"}) == {key: HIDDEN_KEY}
    assert redactor.value({"a": [{key: {"inner": 1}}]}) == {"a": [{key: HIDDEN_KEY}]}


@each_case(
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
    hidden = redactor.text(text)
    assert list(counted_marks(hidden).values()) == [1]
    assert redactor.value({"exception.message": [text]}) == {"exception.message": [hidden]}
    assert list(redactor.value({text: 1})) == [hidden]


def test_every_secret_of_the_corpus_is_replaced(redactor: Redactor) -> None:
    texts = list(secrets())

    assert len(texts) > 1_000
    assert [text for text in texts if redactor.text(text) == text] == []


def test_every_harmless_text_of_the_corpus_is_kept(redactor: Redactor) -> None:
    texts = list(harmless())

    assert len(texts) > 2_000
    assert [text for text in texts if redactor.text(text) != text] == []


@each_case(
    ("key", "value"),
    [
        ("gen_ai.usage.input_tokens", 512),
        ("gen_ai.usage.output_tokens", "77"),
        ("gen_ai.token.type", "input"),
        ("llm.token_count.prompt", 4),
        ("messaging.kafka.message.key", "order-123"),
        ("cache.key", "0" * 31 + "a"),
        ("key", "9f86d081884c7d659a2feaa0c55ad015"),
        ("author", "Ada"),
        ("url.authority", "shop.example"),
        ("auth.method", "password"),
        ("k8s.secret.name", "tls"),
        ("session.count", 3),
        ("PWD", "/usr/src/app"),
        ("user.authenticated", True),
        ("token", None),
    ],
)
def test_value_of_an_ordinary_key_is_kept(redactor: Redactor, key: str, value: object) -> None:
    assert redactor.value({key: value}) == {key: value}


def test_random_value_of_an_ambiguous_key_is_replaced(redactor: Redactor) -> None:
    assert redactor.value({"key": "q8Zt3vLm0PxW7rKd", "code": "ENOENT"}) == {
        "key": HIDDEN_KEY,
        "code": "ENOENT",
    }


def test_mark_names_the_rule() -> None:
    assert rule_of_text(next(tokens())) == "github"
    assert counted_marks(f"{mark('github')} and {mark('slack')}, {mark('github')}") == {
        "github": 2,
        "slack": 1,
    }


@each_case("part", ["a", "k=", "<a ", "%25", "\\", "://", "token: expired ", "curl -u "])
def test_hostile_text_without_a_secret_is_searched_to_its_end(part: str) -> None:
    assert rule_of_text(part * (65_536 // len(part))) is None


def test_value_beside_the_name_of_a_secret_key_is_replaced(redactor: Redactor) -> None:
    row: dict[str, Any] = {"scope": "span", "key": "http.request.header.cookie", "value": "a=1", "share": 0.5}

    assert redactor.value(row) == {**row, "value": HIDDEN_KEY}
    assert redactor.value({**row, "key": "http.route"}) == {**row, "key": "http.route"}


def test_settings_add_rules() -> None:
    redactor = Redactor(Explain(redact_keys=("tenant",), redact_patterns=(r"\d{13,16}",)))

    assert redactor.value({"tenant.name": "acme", "token": "t"}) == {
        "tenant.name": mark("redact_keys"),
        "token": HIDDEN_KEY,
    }
    assert redactor.text("card 4111111111111111") == mark("redact_patterns")
