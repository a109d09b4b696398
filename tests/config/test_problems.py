"""Tests of configuration problems: all are reported together, in printable lines."""

from __future__ import annotations

import pytest

from tests.support.cases import each_case
from tests.support.config_files import ConfigDirectory


def promoted(*entries: str) -> str:
    return f"[store]\npromoted_attributes = [{', '.join(entries)}]"


NO_SECRET = "contains only white space; expected a secret"
VALUES = [
    pytest.param("listn = 'x'", "'listn' in {file} is not a setting; did you mean 'listen'?", id="typo"),
    pytest.param("[store]\nretention_day = 1", "did you mean 'store.retention_days'?", id="typo in a table"),
    pytest.param("[store]\nretention = 1", "did you mean 'store.retention_days'?", id="without its unit"),
    pytest.param(
        "[journal]\nmax_bytes = 1", "did you mean 'journal.bytes_max'?", id="words in another order"
    ),
    pytest.param("[platform]\nurl = 'x'", "did you mean 'platform.base_url'?", id="part of a name"),
    pytest.param(
        "[platform.events]\nfolowed = 1", "did you mean 'platform.events.followed_max'?", id="typo and part"
    ),
    pytest.param("[stroe]\nurl = 1", "did you mean 'store'?", id="typo of a table"),
    pytest.param(
        "[[drain]]\nnam = 'a'", "'drain[0].nam' in {file} is not a setting; did you mean", id="in a drain"
    ),
    pytest.param(
        "[drain]\nname = 'a'", "'drain' in {file} is not a list of tables; expected [[drain]]", id="table"
    ),
    pytest.param(
        "store = 1", "'store' in {file} is a value; expected a table [store]", id="value for a table"
    ),
    pytest.param("[[drain]]\npath = '/x'", "'drain[0]' has no name", id="drain without a name"),
    pytest.param("intakes = 0", "'intakes' (file {file}) is 0; expected 1 to 256", id="too small"),
    pytest.param(
        "intakes = '2'", "'intakes' (file {file}) is '2'; expected a whole number, found a text", id="type"
    ),
    pytest.param("post_root = 3", "is 3; expected true or false, found a whole number", id="switch"),
    pytest.param("intakes = true", "is true; expected a whole number, found true or false", id="number"),
    pytest.param("[resolve]\nproject = 7", "is 7; expected a list, found a whole number", id="list"),
    pytest.param(
        "[limits]\nconnections_per_address_max = 'x'",
        "is 'x'; expected a whole number or nothing, found a text",
        id="optional number",
    ),
    pytest.param("[sampling]\nrate = 1.5", "is 1.5; expected 0 to 1", id="rate"),
    pytest.param("limits.body_bytes_per_s_min = 0", "is 0; expected 1 to 1GiB", id="rate 0"),
    pytest.param("limits.body_bytes_per_s_min = '0 KiB'", "is 0; expected 1 to 1GiB", id="size 0"),
    pytest.param("[journal]\nbytes_max = '4G'", "is '4G'; expected a size such as 8GiB, 512MB", id="size"),
    pytest.param(
        "[journal]\ncodec = 'gzip'",
        "'journal.codec' (file {file}) is 'gzip'; expected one of 'lz4', 'zstd'",
        id="choice",
    ),
    pytest.param("listen = '4318'", "listen is '4318'; expected HOST:PORT", id="address"),
    pytest.param("listen = '127.0.0.1:70000'", "listen has port 70000; expected 0 to 65535", id="port"),
    pytest.param(
        "admin_listen = '127.0.0.1:4318'",
        "admin_listen and listen are both '127.0.0.1:4318'; expected different ports",
        id="same port",
    ),
    pytest.param("[store]\nretention_days = 3", "retention_days is 3; expected more than", id="retention"),
    *(
        pytest.param(f"[store]\nurl = '{url}'", "native port; expected 'embedded' or http(s)://", id=url)
        for url in ("clickhouse:9000", "tcp://u:p@h:9440/otel", "10.0.0.1:9000")
    ),
    pytest.param(
        "[store]\nurl = 'imbedded'", "store.url is not a URL; did you mean 'embedded'?", id="embedded"
    ),
    pytest.param("[store]\nurl = 'tcp://h'", "store.url has scheme 'tcp'", id="scheme"),
    pytest.param("[store]\nurl = 'http://h/a?b=c'", "store.url has a query or fragment", id="query"),
    pytest.param("[tls]\ncert_file = 'none'", "tls.key_file is missing", id="certificate without key"),
    pytest.param(
        "[tls]\ncert_file = 'none'", "none', which cannot be read: No such file", id="missing certificate"
    ),
    pytest.param(
        "[tls]\nclient_ca_file = '/dev/null'",
        "'tls.client_ca_file' (file {file}) names '/dev/null', which cannot be read: it is not a regular",
        id="not a regular file",
    ),
    pytest.param("data_dir = 'a?b'", "the embedded engine ends the path at '?'", id="question mark"),
    pytest.param(
        "data_dir = '/proc/x'", "data_dir '/proc/x' cannot be used: its file system", id="pseudo file system"
    ),
    pytest.param(
        "[[drain]]\nname = 'a'\npath = 'x'", "drain[0] path is 'x'; expected a path that", id="path"
    ),
    pytest.param("[[drain]]\nname = 'a'\npath = '/x?y'", "without query or fragment", id="path with a query"),
    pytest.param("[[drain]]\nname = 'a'\nheader = 'a b'", "expected the name of an HTTP header", id="header"),
    pytest.param(
        "[[drain]]\nname = 'a'\nverify_header_name = 'a b'",
        "verify_header_name is 'a b'; expected the name of an HTTP header",
        id="name of the verification header",
    ),
    pytest.param(
        "[[drain]]\nname = 'a'\nverify_header_name = 'Content-Length'",
        "verify_header_name is 'Content-Length', which HTTP uses",
        id="verification header of HTTP",
    ),
    pytest.param(
        "[[drain]]\nname = 'a'\n[[drain]]\nname = 'a'\npath = '/b'", "configured 2 times", id="names"
    ),
    pytest.param(
        "[[drain]]\nname = 'a'\npath = '/x'\n[[drain]]\nname = 'b'\npath = '/x'",
        "share the path '/x' and cannot be distinguished",
        id="same path without credentials",
    ),
    pytest.param("[[drain]]\nname = 'a'\nsignature_header = 'x'", "without a secret", id="signature"),
    pytest.param(
        "[[drain]]\nname = 'a'\nbody_bytes_max = '1GiB'", "is over limits.inflight", id="body limit"
    ),
    pytest.param("[resolve]\nproject = ['a']", "expected 'resource:KEY' or 'span:KEY'", id="resolve"),
    pytest.param("[sampling]\nmode = 'off'\nrate = 0.5", "while sampling.mode is 'off'", id="sampling off"),
    pytest.param(
        "[[store.retention_rule]]\ndays = 7\nproject = 'a'\n" * 33,
        "store.retention_rule has 33 entries; expected at most 32",
        id="too many retention rules",
    ),
    pytest.param(
        "[[store.retention_rule]]\ndays = 7",
        "store.retention_rule[0] has neither project nor drain",
        id="retention rule",
    ),
    pytest.param(
        "[[store.retention_rule]]\nproject = 'a'\ndays = 30",
        "store.retention_rule[0].days is 30; expected fewer than store.retention_days = 30",
        id="retention rule that is not shorter",
    ),
    pytest.param(
        "[[store.retention_rule]]\ndrain = 'b'\ndays = 7",
        "store.retention_rule[0].drain is 'b'; expected the name of a drain",
        id="retention rule of an unknown drain",
    ),
    pytest.param(
        "[store]\nurl = 'http://u@h:8123/d'\n[[store.retention_rule]]\nproject = 'a'\ndays = 7",
        "store.retention_rule is set and the store is a server",
        id="retention rule on a server",
    ),
    pytest.param("[platform]\nbase_url = 'api.example'", "platform.base_url is not an address", id="url"),
    pytest.param(
        f"[platform]\nencryption_key_previous = '{32 * 'k'}'",
        "platform.encryption_key_previous is set without platform.encryption_key",
        id="previous key without a new one",
    ),
    pytest.param(
        f"[platform]\nencryption_key = '{32 * 'k'}'\nencryption_key_previous = '{32 * 'k'}'",
        "platform.encryption_key_previous equals platform.encryption_key",
        id="previous key that is the new one",
    ),
    pytest.param("[platform]\ninstall_url = 'https://a b'", "platform.install_url is not an", id="space"),
    pytest.param(
        "[platform]\ngateway_url = 'https://u:p@example'",
        "platform.gateway_url is not an address",
        id="password",
    ),
    pytest.param(
        "[platform.explain]\nredact_keys = ['token', '(a']",
        "platform.explain.redact_keys[1] is not a regular expression: unclosed group",
        id="key pattern",
    ),
    pytest.param(
        "[platform.explain]\nredact_patterns = ['a*']",
        "platform.explain.redact_patterns[0] matches the empty text",
        id="pattern of the empty text",
    ),
    pytest.param("[[sampling.rule]]\ndrain = 'x'", "is 'x'; expected the name of a drain", id="rule"),
    pytest.param("a = [", "trace-drain.toml' is not TOML", id="not TOML"),
    pytest.param("api_token = ' '", f"'api_token' (file {{file}}) {NO_SECRET}", id="API token"),
    pytest.param("[store]\npassword = '\t'", f"'store.password' (file {{file}}) {NO_SECRET}", id="password"),
    pytest.param(
        "[[drain]]\nname = 'a'\ntokens = ['t', '  ']",
        f"'drain[0].tokens' (file {{file}}) {NO_SECRET}",
        id="one of the tokens",
    ),
    pytest.param(
        "[[drain]]\nname = 'a'\nsignature_header = 'x-s'\nsignature_secrets = ['\u2003']",
        f"'drain[0].signature_secrets' (file {{file}}) {NO_SECRET}",
        id="signature secret",
    ),
    pytest.param(
        "[[drain]]\nname = 'a'\ntokens = ['s ']",
        "drain[0] token begins or ends with white space",
        id="token with a space",
    ),
]
"""Unknown keys, wrong types, values outside their range, and invalid combinations."""
TOML_ERRORS = [
    pytest.param("intakes = 1\nintakes = 2\nx", " at line 2, column 12; expected KEY = VALUE", id="key"),
    pytest.param("[store]\n[store]\n", " at line 2, column 7; expected", id="table"),
    pytest.param("[tls]\n[[tls]]\n", " at line 2, column 6; expected", id="table and list"),
    pytest.param("listen = 127.0.0.1:4318", " at line 1, column 15; expected", id="address without quotes"),
    pytest.param("listen = localhost:4318", " at line 1, column 10; expected", id="name without quotes"),
    pytest.param("listen = 'x\n", " at end of document; expected", id="unclosed"),
    pytest.param("listen: 4318", " at line 1, column 7; expected", id="YAML"),
    pytest.param('data_dir = "C:\\data"', " at line 1, column 17; expected", id="backslash"),
    pytest.param("tls.cert = [1", " at end of document; expected", id="list"),
    pytest.param("intakes = " + "1" * 5000, "is not TOML; expected", id="digits"),
    pytest.param("intakes = " + "[" * 5000, "nested too deeply", id="depth"),
]
"""Syntax errors, reported with their kind and place."""
LATE_FAILURES = [
    pytest.param(promoted("'http.route'"), "contains 'http.route'; expected 'span:KEY'", id="no scope"),
    pytest.param(promoted("'link:a'"), "contains 'link:a'; expected 'span:KEY'", id="scope without columns"),
    pytest.param(promoted('"span:a\'b"'), "expected 'span:KEY'", id="quotation mark in a key"),
    pytest.param(promoted("'span:a  b'"), "contains 'span:a  b'; expected", id="two spaces"),
    pytest.param(promoted("'span:http.route'"), "column Span_http_route is that of", id="standard attribute"),
    pytest.param(promoted("'span:a.b', 'span:a_b'"), "column Span_a_b is that of", id="same column"),
    pytest.param(promoted("'span:a', 'span:a'"), "column Span_a is that of another", id="attribute twice"),
    pytest.param(
        promoted(*(f"'span:a{number}'" for number in range(33))),
        "has 33 entries; expected 0 to 32",
        id="many",
    ),
    pytest.param("[store]\ndatabase = 'a; b'", "store.database is 'a; b'; expected letters", id="database"),
    pytest.param("api_hosts = ['a.example:443']", "api_hosts names 'a.example:443'; expected", id="port"),
    pytest.param("[tls]\ncert_file = '~nobody-there/x'", "or ~ of an existing user", id="home"),
    pytest.param("[[drain]]\nname='a'\ntoken_file = \"a\\u0000\"", "contains a control character", id="NUL"),
    pytest.param("data_dir = '/tmp/" + "x" * 300 + "'", "cannot be used: File name too long", id="name"),
    pytest.param("data_dir = '/dev/null/x'", "cannot be used: Not a directory", id="not a directory"),
]
"""Values that would otherwise fail only after the start."""


WEBHOOK = "[platform.webhook]\nsecrets = ['s']\npath = "
WEBHOOKS = [
    pytest.param(f"{WEBHOOK}'x'", "path is 'x'; expected a path that starts with '/'", id="webhook path"),
    pytest.param(f"{WEBHOOK}'/'", "path is '/'; expected a path", id="webhook path at the root"),
    pytest.param(f"{WEBHOOK}'/v1/traces/'", "the path of a drain; expected another", id="webhook at a drain"),
    pytest.param("[platform.webhook]\npath = '/w'", "path is set without a secret", id="webhook unsigned"),
    pytest.param(f"{WEBHOOK}'/w'\nsignature_header = 'a b'", "expected the name of", id="webhook header"),
    pytest.param(
        f"{WEBHOOK}'/w'\n[limits]\ninflight_bytes_max = '64 KiB'\nbody_bytes_max = '64 KiB'",
        "platform.webhook.body_bytes_max is over limits.inflight_bytes_max = 64 KiB; expected less",
        id="webhook size",
    ),
    pytest.param(f"{WEBHOOK}'/w'\nremembered_s = 86400", "is 86400.0; expected 172800", id="webhook memory"),
]


@each_case(("toml", "expected"), [*VALUES, *TOML_ERRORS, *LATE_FAILURES, *WEBHOOKS])
def test_problem_names_the_actual_and_the_expected_value(
    config_dir: ConfigDirectory, toml: str, expected: str
) -> None:
    config_file = str(config_dir.directory / "trace-drain.toml")

    assert expected.replace("{file}", config_file) in config_dir.problem(toml)


def test_all_problems_are_reported_together(config_dir: ConfigDirectory) -> None:
    message = config_dir.problem("intakes = 0\nlisten = 1\nfoo = 2", TRACE_DRAIN_STORE__URLS="x")

    for part in ("'intakes'", "'listen'", "'foo'", "TRACE_DRAIN_STORE__URL'?"):
        assert part in message


def test_problems_of_single_values_and_of_combinations_are_reported_together(
    config_dir: ConfigDirectory,
) -> None:
    message = config_dir.problem(
        "intakes = 0\n[store]\nretention_days = 2\n[[drain]]\nname = 'a'\npath = 'x'\nbody_bytes_max = 0\n"
        "[limits]\nbody_bytes_max = '1GiB'\nanswer_deadline_s = inf"
    )

    assert [line.split()[0] for line in message.splitlines()[1:]] == [
        "'intakes'",
        "'drain[0].body_bytes_max'",
        "'limits.answer_deadline_s'",
        "drain[0]",
        "store.retention_days",
    ]


@pytest.mark.parametrize(
    "toml",
    [
        pytest.param("listn = '127.0.0.1:1'\nadmin_listen = '127.0.0.1:4318'", id="mistyped address"),
        pytest.param("listen = 1\nadmin_listen = '127.0.0.1:4318'", id="address of the wrong type"),
        pytest.param("[tls]\ncert_fil = 'a'\nkey_file = '/dev/null'", id="mistyped key"),
        pytest.param(
            "[[drain]]\nname = 'a'\nsignature_header = 'x'\nsignature_secret_file = 'no'",
            id="unreadable file",
        ),
        pytest.param(
            "[[drain]]\npath = '/a'\n[[drain]]\nname = 7\npath = '/b'", id="drains without valid names"
        ),
        pytest.param("[sampling]\nmode = 'none'\nrate = 0.5", id="unknown mode"),
        pytest.param("[[drain]]\nname = 7\n[[sampling.rule]]\ndrain = 'a'", id="drain of a rule"),
        pytest.param("drain = 1\n[[sampling.rule]]\ndrain = 'a'", id="invalid list of drains"),
    ],
)
def test_consequence_of_another_problem_is_not_reported(config_dir: ConfigDirectory, toml: str) -> None:
    message = config_dir.problem(toml).splitlines()[1:]

    assert all(line.startswith("  '") for line in message), message


def test_messages_contain_no_control_character(config_dir: ConfigDirectory) -> None:
    toml = '"a\\nb" = 1\n[[drain]]\nname = "x\\n\\u001b[31m"\n[[drain]]\nname = "y"\npath = "\\r"'

    message = config_dir.problem(toml).splitlines()

    assert all(line.isprintable() for line in message)
    assert len(message) == 4


SEVERAL_PROBLEMS = (
    "[store]\nurl = 'https//foo'\n[[drain]]\nname = 'a'\npath = 'x'\n[[drain]]\nname = 'a'\npath = '/y'\n"
    "signature_header = 'x'\n"
)
"""An invalid URL, path and signature, and a repeated name."""


@pytest.mark.parametrize(
    "other_problem",
    [
        pytest.param("", id="none"),
        pytest.param("tokens = 7", id="tokens of the wrong type"),
        pytest.param("token_file = 'none'", id="unreadable token file"),
        pytest.param("verify_header = 7", id="header of the wrong type"),
        pytest.param("zzz = 1", id="unknown key"),
        pytest.param("[tls]\ncert_file = 7", id="problem in another table"),
        pytest.param("[store.xyz]\na = 1", id="unknown table"),
    ],
)
def test_problem_does_not_hide_unrelated_problems(config_dir: ConfigDirectory, other_problem: str) -> None:
    toml = f"{SEVERAL_PROBLEMS}{other_problem}"

    message = config_dir.problem(toml, TRACE_DRAIN_STORE__PASSWORD_FILE="none", TRACE_DRAIN_ADMIN_LISTEN="x")

    assert "store.url has scheme ''" in message
    assert "drain[0] path is 'x'" in message
    assert "drain 'a' is configured 2 times" in message
    assert "drain[1] signature_header is set without a secret" in message
    assert "admin_listen is 'x'" in message


def test_invalid_address_does_not_hide_another_invalid_address(config_dir: ConfigDirectory) -> None:
    assert "admin_listen is 'x'" in config_dir.problem("listen = 1\nadmin_listen = 'x'")


@pytest.mark.parametrize(
    "name", ["TRACE_DRAIN_DRAIN_FOO__BAR", "TRACE_DRAIN_STORE__FOO", "TRACE_DRAIN_STORE_FOO"]
)
def test_unknown_key_with_only_a_known_table_gets_no_suggestion(
    config_dir: ConfigDirectory, name: str
) -> None:
    message = config_dir.problem("", **{name: "x"})

    assert f"environment {name} is not a setting; `trace-drain config show` lists all settings" in message


def test_toml_error_does_not_quote_the_file(config_dir: ConfigDirectory) -> None:
    message = config_dir.problem("[[drain]]\nname = 'a'\nhunter2 = 'x'\nhunter2 = 'y'\n")

    assert " at line 4, column 14; expected" in message
    assert "hunter2" not in message
