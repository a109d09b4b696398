"""What is wrong with a configuration: all of it told in one go, in lines of printable text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config_desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param("listn = 'x'", "'listn' in {file} is no setting; did you mean 'listen'?", id="typo"),
        pytest.param(
            "[store]\nretention_day = 1", "did you mean 'store.retention_days'?", id="typo in a table"
        ),
        pytest.param("[stroe]\nurl = 1", "did you mean 'store'?", id="typo of a table"),
        pytest.param(
            "[[drain]]\nnam = 'a'", "'drain[0].nam' in {file} is no setting; did you mean", id="in a drain"
        ),
        pytest.param(
            "[drain]\nname = 'a'", "'drain' in {file} is no list of tables; expected [[drain]]", id="table"
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
        pytest.param("[journal]\nbytes_max = '4G'", "is '4G'; expected bytes, as 8GiB, 512MB", id="size"),
        pytest.param(
            "[journal]\ncodec = 'gzip'",
            "'journal.codec' (file {file}) is 'gzip'; expected one of 'lz4', 'zstd'",
            id="choice",
        ),
        pytest.param("listen = '4318'", "listen is '4318'; expected HOST:PORT", id="address"),
        pytest.param("listen = '127.0.0.1:70000'", "listen has port 70000; expected 0 to 65535", id="port"),
        pytest.param(
            "admin_listen = '127.0.0.1:4318'", "as is listen; expected a port of its own", id="same port"
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
            "'tls.client_ca_file' (file {file}) names '/dev/null', which cannot be read: it is no regular",
            id="no file",
        ),
        pytest.param("data_dir = 'a?b'", "takes a '?' for the end of the path", id="question mark"),
        pytest.param("data_dir = '/proc/x'", "data_dir '/proc/x' cannot be used: it is on", id="no disk"),
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
            "verify_header_name is 'Content-Length', a header of HTTP",
            id="verification header of HTTP",
        ),
        pytest.param(
            "[[drain]]\nname = 'a'\n[[drain]]\nname = 'a'\npath = '/b'", "configured 2 times", id="names"
        ),
        pytest.param(
            "[[drain]]\nname = 'a'\n[[drain]]\nname = 'b'", "and look the same", id="one path, open"
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
def test_what_cannot_be_is_told_with_what_was_expected(desk: Desk, toml: str, expected: str) -> None:
    assert expected.replace("{file}", str(desk.directory / "trace-drain.toml")) in desk.problem(toml)


def test_all_problems_are_told_at_once(desk: Desk) -> None:
    told = desk.problem("intakes = 0\nlisten = 1\nfoo = 2", TRACE_DRAIN_STORE__URLS="x")

    assert [word in told for word in ("'intakes'", "'listen'", "'foo'", "TRACE_DRAIN_STORE__URL'?")] == [
        True
    ] * 4


def test_what_is_wrong_with_a_value_and_with_several_together_is_told_in_one_go(desk: Desk) -> None:
    told = desk.problem(
        "intakes = 0\n[store]\nretention_days = 2\n[[drain]]\nname = 'a'\npath = 'x'\nbody_bytes_max = 0\n"
        "[limits]\nbody_bytes_max = '1GiB'\nanswer_deadline_s = inf"
    )

    assert [line.split()[0] for line in told.splitlines()[1:]] == [
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
def test_what_only_follows_from_another_problem_is_not_told(desk: Desk, toml: str) -> None:
    told = desk.problem(toml).splitlines()[1:]

    assert all(line.startswith("  '") for line in told), told


def test_no_message_holds_a_control_character(desk: Desk) -> None:
    toml = '"a\\nb" = 1\n[[drain]]\nname = "x\\n\\u001b[31m"\n[[drain]]\nname = "y"\npath = "\\r"'

    told = desk.problem(toml).splitlines()

    assert all(line.isprintable() for line in told)
    assert len(told) == 4


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param(
            "intakes = 1\nintakes = 2\nx", "line 2, column 12: a key or table is said twice", id="key"
        ),
        pytest.param("[store]\n[store]\n", "line 2, column 7: a key or table is said twice", id="table"),
        pytest.param("[tls]\n[[tls]]\n", "said twice; expected it once, or [[", id="both"),
        pytest.param("listen = 127.0.0.1:4318", "something follows a value; expected", id="no quotes"),
        pytest.param("listen = localhost:4318", "a value is none; expected a text in quotes", id="no value"),
        pytest.param("listen = 'x\n", "a text is not closed", id="open"),
        pytest.param("listen: 4318", "a line is no KEY = VALUE", id="YAML"),
        pytest.param('data_dir = "C:\\data"', "a lone backslash", id="backslash"),
        pytest.param("tls.cert = [1", "a list is not closed", id="list"),
        pytest.param("intakes = " + "1" * 5000, "a number of thousands of digits", id="digits"),
        pytest.param("intakes = " + "[" * 5000, "nested too deep", id="depth"),
    ],
)
def test_what_is_no_toml_is_told_by_its_kind_and_place(desk: Desk, toml: str, expected: str) -> None:
    assert expected in desk.problem(toml)


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param(
            "[store]\ndatabase = 'a; b'", "store.database is 'a; b'; expected letters", id="database"
        ),
        pytest.param("api_hosts = ['a.example:443']", "api_hosts names 'a.example:443'; expected", id="port"),
        pytest.param("[tls]\ncert_file = '~nobody-there/x'", "or ~ of a user that is there", id="home"),
        pytest.param("[[drain]]\nname='a'\ntoken_file = \"a\\u0000\"", "holds a control character", id="NUL"),
        pytest.param("data_dir = '/tmp/" + "x" * 300 + "'", "cannot be used: File name too long", id="name"),
        pytest.param("data_dir = '/dev/null/x'", "cannot be used: Not a directory", id="no directory"),
    ],
)
def test_what_would_break_later_is_refused_at_once(desk: Desk, toml: str, expected: str) -> None:
    assert expected in desk.problem(toml)


SEMANTIC = (
    "[store]\nurl = 'https//foo'\n[[drain]]\nname = 'a'\npath = 'x'\n[[drain]]\nname = 'a'\npath = '/y'\n"
    "signature_header = 'x'\n"
)
"""A URL, a path, two names and a signature, each wrong in itself."""


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
def test_a_mistake_hides_no_other_that_has_nothing_to_do_with_it(desk: Desk, beside: str) -> None:
    toml = f"{SEMANTIC}{beside}"

    told = desk.problem(toml, TRACE_DRAIN_STORE__PASSWORD_FILE="none", TRACE_DRAIN_ADMIN_LISTEN="x")

    assert "store.url has scheme ''" in told
    assert "drain[0] path is 'x'" in told
    assert "drain 'a' is configured 2 times" in told
    assert "drain[1] signature_header is set without a secret" in told
    assert "admin_listen is 'x'" in told


def test_an_address_that_is_not_understood_hides_no_other(desk: Desk) -> None:
    assert "admin_listen is 'x'" in desk.problem("listen = 1\nadmin_listen = 'x'")


@pytest.mark.parametrize(
    "name", ["TRACE_DRAIN_DRAIN_FOO__BAR", "TRACE_DRAIN_STORE__FOO", "TRACE_DRAIN_STORE_FOO"]
)
def test_what_is_like_a_setting_only_in_its_table_is_given_no_suggestion(desk: Desk, name: str) -> None:
    told = desk.problem("", **{name: "x"})

    assert f"environment {name} is no setting; see `trace-drain config show` for all" in told


def test_a_shared_path_is_told_as_it_was_written(desk: Desk) -> None:
    told = desk.problem("[[drain]]\nname = 'a'\npath = '/x'\n[[drain]]\nname = 'b'\npath = '/x'")

    assert "share a path ('/x') and" in told
