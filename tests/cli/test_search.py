"""Tests of `trace-drain search` with a receiver that does not run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import each_case
from tests.support.commands import run, stored_spans

TRACE = f"{7:032x}"
SEARCHED = {"field": "service", "op": "=", "value": "searched"}


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory with three traces of a span each, whose name has an escape sequence."""
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - 60))
    rows = [
        {
            "Timestamp": started,
            "TraceId": f"{number:032x}",
            "SpanId": f"{number:016x}",
            "ServiceName": "searched",
            "SpanName": "\x1b[2J\u202ename",
            "StatusCode": "Error" if number == 7 else "Ok",
            "Duration": 300_000_000,
            "DeploymentId": f"dpl_{number}",
            "SpanAttributes": {"http.route": f"/api/{number}"},
        }
        for number in (7, 8, 9)
    ]
    with stored_spans(engine_dir, rows) as directory:
        yield directory


def test_search_as_json_has_the_documented_keys(data_dir: str) -> None:
    filter_text = 'service=searched status=error duration>250ms http.route="/api/*" -name=~"^health"'

    result = run("search", filter_text, "--data", data_dir, "--format", "json")

    (row,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (0, "")
    assert {**row, "start": ""} == {
        "trace_id": TRACE,
        "service": "searched",
        "name": "\x1b[2J\u202ename",
        "deployment": "dpl_7",
        "start": "",
        "duration_ms": 300,
        "spans": 1,
        "errors": 1,
    }


def test_search_table_escapes_control_and_direction_characters(data_dir: str) -> None:
    result = run("search", "service=searched", "--data", data_dir)

    head, *lines = result.stdout.splitlines()
    columns = "started (UTC) trace service span duration spans errors deployment"
    assert head.split() == columns.split()
    assert len(lines) == 3
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert "300 ms" in lines[0]
    assert {line.split()[-1] for line in lines} == {"dpl_7", "dpl_8", "dpl_9"}


def test_filter_may_begin_with_a_negation_and_may_be_several_arguments(data_dir: str) -> None:
    arguments = ("search", "-has-error", "service=searched", "--data", data_dir, "--format", "json")

    assert len(run(*arguments).stdout.splitlines()) == 2
    assert run("search", "-h").stdout == run("search", "--help").stdout


MORE = "there are more: --limit N prints up to"
EMPTY = "no span of the last 1h matches; use --since TIME to search further back"


@each_case(
    ("arguments", "lines", "note"),
    [
        ("search service=searched --limit 2", 2, f"the first 2 traces of the last 1h; {MORE} 10000\n"),
        ("spans --service searched --limit 1", 1, f"the first 1 span of the last 1h; {MORE} 1000000\n"),
        ("attributes http.route --limit 1", 1, f"the first 1 line of the last 1h; {MORE} 100000\n"),
        ("spans --service searched --limit 3", 3, ""),
        ("search service=absent", 0, f"{EMPTY}\n"),
        ("operations absent", 0, f"{EMPTY}\n"),
        ("deployment-events dpl_9", 0, "no event of the last 1h matches; use --since TIME "),
        ("search --since 9d --until 8d", 0, "no span between --since 9d and --until 8d matches; use "),
    ],
)
def test_note_on_standard_error_reports_that_more_match_or_none(
    data_dir: str, arguments: str, lines: int, note: str
) -> None:
    table = run(*arguments.split(), "--data", data_dir)
    result = run(*arguments.split(), "--data", data_dir, "--format", "jsonl")

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, lines)
    assert result.stderr.startswith(note)
    assert bool(result.stderr) == bool(note)
    assert table.stderr == result.stderr


@each_case(
    "arguments",
    [
        ["{service=searched status=error} && {http.route=/api/7 trace:spans=1}"],
        [json.dumps({"all": [SEARCHED, {"field": "status", "op": "=", "value": "error"}]})],
        ["--traceql", "{ status = error && rootServiceName =~ `search.*` }"],
    ],
    ids=["one line", "JSON", "TraceQL"],
)
def test_every_form_of_a_filter_finds_the_trace(data_dir: str, arguments: list[str]) -> None:
    result = run("search", *arguments, "--data", data_dir, "--format", "json")

    assert [json.loads(line)["trace_id"] for line in result.stdout.splitlines()] == [TRACE], result.stderr


def test_search_without_a_match_names_close_attributes_harmlessly(data_dir: str) -> None:
    result = run("search", "http.rout=/api/7", "--data", data_dir)

    _, note = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (0, "")
    assert note == "similar attributes that spans have: span.http.route"


def test_red_by_an_unknown_attribute_names_similar_attributes_and_no_other_remedy(data_dir: str) -> None:
    result = run("red", "--by", "http.rout", "--data", data_dir)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "no span of the last 1h matches",
        "similar attributes that spans have: span.http.route",
    ]


def test_error_in_json_has_its_path(data_dir: str) -> None:
    unknown = run("search", '{"not": {"field": "sevice"}}', "--data", data_dir)
    regex = run("search", '{"not": {"field": "name", "op": "=~", "value": "("}}', "--data", data_dir)

    assert (unknown.exit_code, regex.exit_code) == (2, 2)
    assert "filter, $.not.field: unknown field; did you mean 'service'?" in unknown.stderr
    assert "filter, $.not.value: the regular expression is not valid" in regex.stderr


@each_case(
    ("text", "caret"),
    [
        pytest.param("service=searched statsu=error", 17, id="unknown field"),
        pytest.param('service=searched name=~"("', 23, id="regular expression that the engine refuses"),
        pytest.param("{service=searched && root}", 18, id="TraceQL in a one-line filter"),
        pytest.param("--traceql {name=searched}", 6, id="TraceQL"),
        pytest.param("--traceql {name=~`a)|(b`}", 7, id="regular expression with added parentheses"),
    ],
)
def test_error_in_a_filter_is_shown_with_a_caret(data_dir: str, text: str, caret: int) -> None:
    text, *options = reversed(text.split(" ", 1) if text.startswith("--") else [text])
    result = run("search", text, *options, "--data", data_dir)

    message, shown, marked = result.stderr.splitlines()
    assert result.exit_code == 2
    assert message.startswith(f"trace-drain: filter, column {caret + 1}: ")
    assert (shown, marked) == (f"  {text}", f"  {' ' * caret}^")


def test_caret_is_below_the_error_after_wide_characters() -> None:
    result = run("search", "service=支付 statsu=error")

    assert result.stderr.splitlines()[1:] == ["  service=支付 statsu=error", f"  {' ' * 13}^"]


@each_case(
    "hostile", ["\x1b]0;title\x07", "\u202e", "' OR 1=1 --", "$(id)", "`id`", "; DROP TABLE otel_traces"]
)
def test_message_about_a_hostile_filter_is_harmless(data_dir: str, hostile: str) -> None:
    result = run("search", f"service=x {hostile}", "--data", data_dir)

    # Some are texts to search for.
    assert result.exit_code in (0, 2)
    assert result.stdout == ""
    assert result.stderr.replace("\n", "").isprintable()


@each_case(
    ("arguments", "message"),
    [
        (["--lmit", "5"], "No such option '--lmit'"),
        (["--limit", "0"], "limit: expected a whole number from 1 to 10000"),
        (["--since", "soon"], "since is neither an age nor an instant"),
        (["--since", "1h", "--until", "1h"], "until: expected a later time than since"),
    ],
)
def test_invalid_option_is_refused(arguments: list[str], message: str) -> None:
    result = run("search", *arguments)

    assert result.exit_code == 2
    assert message in result.output


@each_case(
    ("arguments", "expected"),
    [
        (["services"], {"service": "searched", "spans": 3, "errors": 1, "operations": 1}),
        (["attributes"], {"scope": "span", "key": "http.route", "spans": 3}),
        (["attributes", "http.route"], {"scope": "span", "key": "http.route", "value": "/api/7", "spans": 1}),
        (
            ["operations", "searched"],
            {"name": "\x1b[2J\u202ename", "spans": 3, "p50_ms": 300, "p95_ms": 300, "p99_ms": 300},
        ),
    ],
)
def test_names_are_listed_as_json_and_as_a_harmless_table(
    data_dir: str, arguments: list[str], expected: dict[str, object]
) -> None:
    listed = run(*arguments, "--data", data_dir, "--since", "30m", "--format", "json")
    shown = run(*arguments, "--data", data_dir, "--since", "30m")

    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert any(expected.items() <= row.items() for row in rows), rows
    assert shown.stdout.splitlines()[0].split() == list(rows[0])
    assert shown.stdout.replace("\n", "").isprintable()
