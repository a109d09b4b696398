"""Claims about configuration problems: all are reported together, in printable lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_files import ConfigDirectory


@pytest.fixture
def config_dir(tmp_path: Path) -> ConfigDirectory:
    return ConfigDirectory(tmp_path)


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param("listn = 'x'", "'listn' in {file} is not a setting; did you mean 'listen'?", id="typo"),
        pytest.param(
            "[store]\nretention_day = 1", "did you mean 'store.retention_days'?", id="typo in a table"
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
        pytest.param("[[drain]]\npath = '/x'", "'drain[0]' has no name", id="a drain without a name"),
        pytest.param("intakes = 0", "'intakes' (file {file}) is 0; expected 1 to 256", id="too small"),
        pytest.param(
            "intakes = '2'",
            "'intakes' (file {file}) is '2'; expected a whole number, found a text",
            id="type",
        ),
        pytest.param("post_root = 3", "is 3; expected true or false, found a whole number", id="switch"),
        pytest.param("intakes = true", "is true; expected a whole number, found true or false", id="number"),
        pytest.param("[resolve]\nproject = 7", "is 7; expected a list, found a whole number", id="list"),
        pytest.param(
            "[limits]\nconnections_per_address_max = 'x'",
            "is 'x'; expected a whole number or nothing, found a text",
            id="what may be left out",
        ),
        pytest.param("[sampling]\nrate = 1.5", "is 1.5; expected 0 to 1", id="rate"),
        pytest.param("limits.body_bytes_per_s_min = 0", "is 0; expected 1 to 1GiB", id="no floor"),
        pytest.param("limits.body_bytes_per_s_min = '0 KiB'", "is 0; expected 1 to 1GiB", id="size 0"),
        pytest.param(
            "[journal]\nbytes_max = '4G'", "is '4G'; expected a size such as 8GiB, 512MB", id="size"
        ),
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
        pytest.param(
            "[store]\nretention_days = 3", "retention_days is 3; expected more than", id="retention"
        ),
        pytest.param("[store]\nurl = 'tcp://h'", "store.url has scheme 'tcp'", id="scheme"),
        pytest.param("[store]\nurl = 'http://h/a?b=c'", "store.url has a query or fragment", id="query"),
        pytest.param("[tls]\ncert_file = 'none'", "tls.key_file is missing", id="half of TLS"),
        pytest.param(
            "[tls]\ncert_file = 'none'", "none', which cannot be read: No such file", id="no certificate"
        ),
        pytest.param(
            "[tls]\nclient_ca_file = '/dev/null'",
            "'tls.client_ca_file' (file {file}) names '/dev/null', which cannot be read: it is not a regular",
            id="no file",
        ),
        pytest.param("data_dir = 'a?b'", "the embedded engine ends the path at '?'", id="question mark"),
        pytest.param(
            "data_dir = '/proc/x'", "data_dir '/proc/x' cannot be used: its file system", id="no disk"
        ),
        pytest.param(
            "[[drain]]\nname = 'a'\npath = 'x'", "drain[0] path is 'x'; expected a path that", id="path"
        ),
        pytest.param(
            "[[drain]]\nname = 'a'\npath = '/x?y'", "without query or fragment", id="path with a query"
        ),
        pytest.param(
            "[[drain]]\nname = 'a'\nheader = 'a b'", "expected the name of an HTTP header", id="header"
        ),
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
            "[[drain]]\nname = 'a'\n[[drain]]\nname = 'b'", "and cannot be distinguished", id="one path, open"
        ),
        pytest.param("[[drain]]\nname = 'a'\nsignature_header = 'x'", "without a secret", id="signature"),
        pytest.param(
            "[[drain]]\nname = 'a'\nbody_bytes_max = '1GiB'", "is over limits.inflight", id="body limit"
        ),
        pytest.param("[resolve]\nproject = ['a']", "expected 'resource:KEY' or 'span:KEY'", id="resolve"),
        pytest.param(
            "[sampling]\nmode = 'off'\nrate = 0.5", "while sampling.mode is 'off'", id="sampling off"
        ),
        pytest.param("[[sampling.rule]]\ndrain = 'x'", "is 'x'; expected the name of a drain", id="rule"),
        pytest.param("a = [", "trace-drain.toml' is not TOML", id="no TOML"),
    ],
)
def test_problem_names_the_actual_and_the_expected_value(
    config_dir: ConfigDirectory, toml: str, expected: str
) -> None:
    assert expected.replace("{file}", str(config_dir.directory / "trace-drain.toml")) in config_dir.problem(
        toml
    )


def test_all_problems_are_reported_together(config_dir: ConfigDirectory) -> None:
    message = config_dir.problem("intakes = 0\nlisten = 1\nfoo = 2", TRACE_DRAIN_STORE__URLS="x")

    assert [word in message for word in ("'intakes'", "'listen'", "'foo'", "TRACE_DRAIN_STORE__URL'?")] == [
        True
    ] * 4


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
        pytest.param("listn = '127.0.0.1:1'\nadmin_listen = '127.0.0.1:4318'", id="an address mistyped"),
        pytest.param("listen = 1\nadmin_listen = '127.0.0.1:4318'", id="an address of another type"),
        pytest.param("[tls]\ncert_fil = 'a'\nkey_file = '/dev/null'", id="a key mistyped"),
        pytest.param(
            "[[drain]]\nname = 'a'\nsignature_header = 'x'\nsignature_secret_file = 'no'", id="file"
        ),
        pytest.param("[[drain]]\npath = '/a'\n[[drain]]\nname = 7\npath = '/b'", id="no names"),
        pytest.param("[sampling]\nmode = 'none'\nrate = 0.5", id="a mode that is none"),
        pytest.param("[[drain]]\nname = 7\n[[sampling.rule]]\ndrain = 'a'", id="a rule's drain"),
        pytest.param("drain = 1\n[[sampling.rule]]\ndrain = 'a'", id="drains that are none"),
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


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param(
            "intakes = 1\nintakes = 2\nx", "line 2, column 12: a key or table is defined twice", id="key"
        ),
        pytest.param("[store]\n[store]\n", "line 2, column 7: a key or table is defined twice", id="table"),
        pytest.param("[tls]\n[[tls]]\n", "defined twice; expected it once, or [[", id="both"),
        pytest.param("listen = 127.0.0.1:4318", "unexpected text after a value; expected", id="no quotes"),
        pytest.param("listen = localhost:4318", "invalid value; expected a text in quotes", id="no value"),
        pytest.param("listen = 'x\n", "unclosed text", id="open"),
        pytest.param("listen: 4318", "a key has no value; expected KEY = VALUE", id="YAML"),
        pytest.param('data_dir = "C:\\data"', "a single backslash", id="backslash"),
        pytest.param("tls.cert = [1", "unclosed list", id="list"),
        pytest.param("intakes = " + "1" * 5000, "a number has thousands of digits", id="digits"),
        pytest.param("intakes = " + "[" * 5000, "nested too deeply", id="depth"),
    ],
)
def test_toml_error_is_reported_with_its_kind_and_place(
    config_dir: ConfigDirectory, toml: str, expected: str
) -> None:
    assert expected in config_dir.problem(toml)


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param(
            "[store]\ndatabase = 'a; b'", "store.database is 'a; b'; expected letters", id="database"
        ),
        pytest.param("api_hosts = ['a.example:443']", "api_hosts names 'a.example:443'; expected", id="port"),
        pytest.param("[tls]\ncert_file = '~nobody-there/x'", "or ~ of an existing user", id="home"),
        pytest.param(
            "[[drain]]\nname='a'\ntoken_file = \"a\\u0000\"", "contains a control character", id="NUL"
        ),
        pytest.param("data_dir = '/tmp/" + "x" * 300 + "'", "cannot be used: File name too long", id="name"),
        pytest.param("data_dir = '/dev/null/x'", "cannot be used: Not a directory", id="no directory"),
    ],
)
def test_value_that_would_fail_later_is_refused_at_load(
    config_dir: ConfigDirectory, toml: str, expected: str
) -> None:
    assert expected in config_dir.problem(toml)


SEMANTIC = (
    "[store]\nurl = 'https//foo'\n[[drain]]\nname = 'a'\npath = 'x'\n[[drain]]\nname = 'a'\npath = '/y'\n"
    "signature_header = 'x'\n"
)
"""An invalid URL, path and signature, and a repeated name."""


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param("", id="nothing"),
        pytest.param("tokens = 7", id="tokens of another type"),
        pytest.param("token_file = 'none'", id="a token that cannot be read"),
        pytest.param("verify_header = 7", id="another header"),
        pytest.param("zzz = 1", id="a key that is none"),
        pytest.param("[tls]\ncert_file = 7", id="another table"),
        pytest.param("[store.xyz]\na = 1", id="a table that is none"),
    ],
)
def test_problem_does_not_hide_unrelated_problems(config_dir: ConfigDirectory, beside: str) -> None:
    toml = f"{SEMANTIC}{beside}"

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


def test_shared_path_is_quoted_as_written(config_dir: ConfigDirectory) -> None:
    message = config_dir.problem("[[drain]]\nname = 'a'\npath = '/x'\n[[drain]]\nname = 'b'\npath = '/x'")

    assert "share the path '/x' and" in message
