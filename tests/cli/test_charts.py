"""Tests of charts in the terminal, and of the commands that draw them."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from receiver.cli.console.charts import parts, shade, sparkline, starts_of, time_axis
from receiver.cli.console.trace import terminal_view
from tests.support.cases import each_case
from tests.support.commands import run, stored_spans

NOW_S = int(time.time())


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory with three requests: 10 ms, 20 ms and 40 ms; the first failed."""
    rows = [
        {
            "Timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(NOW_S - 60 * minutes)),
            "TraceId": f"{minutes:032x}",
            "ServiceName": "charted",
            "SpanName": "\x1b[2J\u202ename",
            "SpanKind": "Server",
            "StatusCode": "Error" if minutes == 5 else "Ok",
            "StatusMessage": "\x1b]0;title\x07 5" if minutes == 5 else "",
            "DeploymentId": f"dpl_{minutes}",
            "SampleWeight": 4 if minutes == 5 else 1,
            "Duration": duration_ms * 1_000_000,
        }
        for minutes, duration_ms in ((5, 10), (6, 20), (25, 40))
    ]
    with stored_spans(engine_dir, rows) as directory:
        yield directory


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_red_prints_a_line_for_each_group_with_the_estimate_before_sampling(data_dir: str) -> None:
    result = run("red", "--filter", "service=charted", "--data", data_dir)

    head, line = map(cells_of, result.stdout.splitlines())
    assert dict(zip(head, line, strict=True)) == {
        "group": "charted",
        "spans": "3",
        "before sampling": "6 ± 7",
        "per s": "0.000833",
        "errors": "1",
        "error rate": "33.33%",
        "p50": "20 ms",
        "p95": "40 ms",
        "p99": "40 ms",
        "max": "40 ms",
    }


def test_two_groups_of_a_chart_are_one_option_or_two(data_dir: str) -> None:
    command = ("chart", "--filter", "service=charted", "--data", data_dir)

    assert run(*command, "--by", "kind", "--by", "deployment").stdout == (
        run(*command, "--by", "kind,deployment").stdout
    )


def test_column_that_no_trace_has_is_reported(data_dir: str) -> None:
    result = run("search", "service=charted", "--columns", "no.key", "--columns", "kind", "--data", data_dir)

    assert result.stderr.splitlines()[0] == "none of these traces has the attribute no.key"


def test_red_over_time_draws_a_sparkline_with_a_gap_where_no_span_is(data_dir: str) -> None:
    result = run("red", "--filter", "service=charted", "--every", "1m", "--data", data_dir)

    head, line, axis = result.stdout.splitlines()
    rate = line[head.index("rate") : head.index("max per s")].rstrip()
    assert rate == f"█{' ' * 18}██"
    assert line[head.index(" p95") + 1 :].split()[0] == "█"
    assert axis.startswith("time: 21 intervals of 1m, from ")


def test_latency_draws_a_line_for_each_range_of_durations(data_dir: str) -> None:
    result = run("latency", "--filter", "service=charted", "--every", "1m", "--data", data_dir)

    *lines, _axis, legend = result.stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["1", "0", "0", "0", "1", "0", "0", "0", "1"]
    assert lines[0].endswith(f"|█{' ' * 20}|  1")
    assert lines[-1].endswith(f"|{' ' * 20}█|  1")
    assert legend.endswith("darkest: 1 spans")


def test_errors_are_printed_without_control_characters(data_dir: str) -> None:
    result = run("errors", "--filter", "service=charted", "--data", data_dir)

    head, line = result.stdout.splitlines()
    assert line[head.index("message") : head.index("deployments")].rstrip().endswith(" <number>")
    assert line.endswith(f"{5:032x}")
    assert "dpl_5" in line
    assert result.stdout.replace("\n", "").isprintable()


def test_empty_answer_names_the_option_that_counts_every_span(data_dir: str) -> None:
    result = run("red", "--filter", "service=absent", "--data", data_dir)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith("; only requests count; --spans all counts every span\n")


def test_sparkline_is_as_high_as_the_share_of_the_largest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "utf-8"))

    assert sparkline([0, 1, 50, 100]) == " ▁▅█"
    assert sparkline([0, 0]) == "  "
    assert [shade(count, 10_000) for count in (0, 1, 11, 101, 10_000)] == [" ", "░", "▒", "▓", "█"]


@each_case("encoding", ["ascii", "latin-1", None])
def test_charts_are_ascii_where_the_encoding_lacks_block_characters_or_the_output_is_closed(
    monkeypatch: pytest.MonkeyPatch, encoding: str | None
) -> None:
    monkeypatch.setattr("sys.stdout", encoding and io.TextIOWrapper(io.BytesIO(), encoding))

    assert sparkline([1, 2, 100]).isascii()
    assert shade(1, 1).isascii()
    assert not terminal_view(None, errors_only=False).is_cut


@each_case("length", [0, 1, 29, 30, 31, 61, 1_000])
def test_parts_of_a_chart_cover_the_sequence_in_order(length: int) -> None:
    divided = [list(range(length))[part] for part in parts(length, 30)]

    assert [place for part in divided for place in part] == list(range(length))
    assert len(divided) <= 30
    assert all(divided)


def test_intervals_without_spans_are_added_between_the_others() -> None:
    rows = [{"start": f"2026-01-31T10:{minute:02}:00Z"} for minute in (0, 10, 25)]

    assert len(starts_of(rows, 300)) == 6
    assert len(starts_of(rows[::2], 300)) == 6
    assert len(starts_of(rows[:1], 300)) == 1


@each_case(("seconds", "length"), [(1, "1s"), (90, "90s"), (300, "5m"), (7_200, "2h"), (86_400, "1d")])
def test_time_axis_ends_at_the_end_of_the_last_interval(seconds: int, length: str) -> None:
    rows = [{"start": "1970-01-01T00:00:00Z"}]

    axis = time_axis(starts_of(rows, seconds), [{**row, "complete": True} for row in rows])

    end = datetime.fromtimestamp(seconds, UTC)
    assert axis == f"time: 1 interval of {length}, from 1970-01-01 00:00:00 to {end:%Y-%m-%d %H:%M:%S} (UTC)"


@each_case(
    ("complete", "note"),
    [
        ((True, True, True), "(UTC)"),
        ((False, True, True), "(UTC); the first interval is incomplete"),
        ((False, True, False), "(UTC); the first and last intervals are incomplete"),
    ],
)
def test_time_axis_names_incomplete_intervals(complete: tuple[bool, ...], note: str) -> None:
    rows = [
        {"start": f"2026-01-31T10:{10 * number:02}:00Z", "complete": is_complete}
        for number, is_complete in enumerate(complete)
    ]

    assert time_axis(starts_of(rows, 600), rows).endswith(note)


def test_chart_prints_a_line_for_each_group_with_its_value_over_time(data_dir: str) -> None:
    options = (
        "--measure",
        "max",
        "--by",
        "service,status",
        "--filter",
        "service=charted",
        "--data",
        data_dir,
    )
    total, over_time = run("chart", *options), run("chart", *options, "--every", "1m", "--top", "1")

    head, *lines = (re.split(r"  +", line.strip()) for line in total.stdout.splitlines())
    assert head == ["service", "status", "max", "spans"]
    assert lines == [["charted", "Ok", "40 ms", "2"], ["charted", "Error", "10 ms", "1"]]
    head_line, first, rest, axis = over_time.stdout.splitlines()
    assert head_line.endswith("over time")
    assert first.endswith(f"█{' ' * 18}▅")
    assert re.split(r"  +", rest.strip())[:3] == ["(the rest)", "10 ms", "1"]
    assert axis.startswith("time: 21 intervals of 1m, from ")
