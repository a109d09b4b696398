"""Tests of the waterfall of a trace: bars, marks, filters, widths, hostile text, large traces."""

from __future__ import annotations

import random
import re

import pytest

from receiver.cli.console.waterfall import (
    EVENTS_SHOWN_MAX,
    IDS_SHOWN_MAX,
    SERVICES_SHOWN_MAX,
    View,
    waterfall,
)
from receiver.cli.shell.text_width import text_width
from receiver.console.queries.traces.trace_model import trace_of
from tests.support.cases import each_case
from tests.support.traces import Row, random_rows, span

BAR_END = 19 + View().bar_columns
MS = 1_000_000


def lines_of(rows: list[Row], **view: object) -> list[str]:
    return list(waterfall(trace_of(rows), View(**view)))  # type: ignore[arg-type]  # any field


def texts(rows: list[Row], **view: object) -> list[str]:
    """Return the part of each line beside its bar."""
    return [line[BAR_END:].strip("* ") for line in lines_of(rows, **view)[2:]]


def bars(rows: list[Row]) -> list[str]:
    return [line[19:BAR_END] for line in lines_of(rows)[2:]]


def test_children_are_indented_and_orphans_cycles_errors_and_copies_are_marked() -> None:
    rows = [
        span("a", "", 0, 90),
        span("b", "a", 1, 9, StatusCode="Error", StatusMessage="boom"),
        span("c", "b", 2, 3),
        span("c", "b", 2, 3),
        span("d", "gone", 3, 4),
        span("e", "a", 4, 5),
        span("f", "f", 5, 6, ServiceName="", SpanName=""),
    ]

    lines = [line[BAR_END + 3 :] for line in lines_of(rows)[2:]]

    assert lines == [
        "shop: span a",
        "  shop: span b [error] boom",
        "    shop: span c (2 copies)",
        "  shop: span e",
        "shop: span d (parent not stored)",
        "(no service): (no name) (its parent is below it)",
    ]


def test_heading_has_counts_services_and_times() -> None:
    rows = [span("a", "", 0, 4 * MS), span("b", "a", 0, MS, ServiceName="", StatusCode="Error")]

    spans, summary = lines_of(rows)[:2]

    assert spans == f"trace {'t' * 32}: 2 spans of (no service), shop"
    assert summary == (
        "started 2026-01-31 10:00:00.000 UTC, took 4 ms, 1 error; "
        "critical path (* █): shop 75%, (no service) 25%"
    )


def test_heading_names_the_first_projects_deployments_and_services_and_counts_the_others() -> None:
    single = [span("a", ProjectId="prj", DeploymentId="dpl_1"), span("b", "a", ProjectId="prj")]
    several = [span(str(n), DeploymentId=f"dpl_{n}") for n in range(IDS_SHOWN_MAX + 2)]
    services = [span(str(n), ServiceName=f"s{n:02}") for n in range(SERVICES_SHOWN_MAX + 3)]

    assert lines_of(single)[0].endswith(" of shop; project prj; deployment dpl_1")
    assert lines_of(several)[0].endswith(" of shop; deployments dpl_0, dpl_1, dpl_2 and 2 more")
    assert lines_of(services)[0].endswith("s08, s09 and 3 more services")


def test_bars_are_scaled_and_show_the_critical_path_whose_lines_have_an_asterisk() -> None:
    rows = [span("root", "", 0, 260), span("off", "root", 10, 40), span("last", "root", 30, 130)]

    assert View().bar_columns == 26
    assert bars(rows) == ["█" * 3 + "─" * 10 + "█" * 13, " ───" + " " * 22, " " * 3 + "█" * 10 + " " * 13]
    assert ["*" in line for line in lines_of(rows)[2:]] == [True, False, True]


def test_every_bar_of_random_traces_is_as_wide_as_the_column() -> None:
    rng = random.Random(3)
    for _ in range(200):
        rows = random_rows(rng)
        for bar in bars(rows):
            assert re.fullmatch(r" *[█─]+ *", bar), bar
            assert len(bar) == View().bar_columns


def test_child_that_starts_before_its_parent_is_marked_and_keeps_its_times() -> None:
    rows = [span("a", "", 10 * MS, 20 * MS), span("b", "a", 7 * MS, 12 * MS)]

    parent, child = lines_of(rows)[2:]

    assert parent.split()[:2] == ["+3", "ms"]
    assert child.split()[:4] == ["+0", "ns", "5", "ms"]
    assert child.endswith("(starts 3 ms before its parent)")


def test_errors_only_shows_spans_with_errors_and_their_ancestors() -> None:
    rows = [span("a"), span("b", "a"), span("c", "b", StatusCode="Error"), span("d", "c"), span("e", "a")]

    *shown, note = lines_of(rows, errors_only=True)[2:]

    assert [line.split()[-1] for line in shown] == ["a", "b", "[error]"]
    assert note == "3 of 5 spans shown"


def test_depth_limits_the_levels_and_counts_the_spans_below() -> None:
    rows = [span("a"), span("b", "a"), span("c", "b"), span("d", "c"), span("e", "a")]

    *shown, note = lines_of(rows, depth_max=2)[2:]

    assert [line[BAR_END + 3 :] for line in shown] == [
        "shop: span a",
        "  shop: span b (+2 spans below)",
        "  shop: span e",
    ]
    assert note == "3 of 5 spans shown"


def test_events_and_links_are_printed_below_their_span() -> None:
    events: Row = {
        "Events.Timestamp": ["2026-01-31 10:00:00.003000000", "2026-01-31 09:59:59.999000000"],
        "Events.Name": ["exception", ""],
        "Events.Attributes": [{"exception.type": "ValueError", "exception.message": "bad\x1b[2J"}, {}],
        "Links.TraceId": ["ab" * 16],
    }

    lines = texts([span("a", "", 0, MS, **events)])[1:]

    assert lines == [
        "- exception +3 ms ValueError: bad\\x1b[2J",
        "- (no name) -1 ms",
        f"- linked to trace {'ab' * 16}",
    ]


def test_events_over_their_limit_are_counted() -> None:
    count = EVENTS_SHOWN_MAX + 2
    events: Row = {
        "Events.Timestamp": ["2026-01-31 10:00:00.000000000"] * count,
        "Events.Name": ["e"] * count,
        "Events.Attributes": [{}] * count,
    }

    lines = texts([span("a", **events)])[1:]

    assert len(lines) == EVENTS_SHOWN_MAX + 1
    assert lines[-1] == "- and 2 more events"


@each_case("columns", [40, 80, 200])
def test_lines_fit_a_terminal_with_wide_and_combining_characters(columns: int) -> None:
    name = "日本語" * 20 + "e\u0301" * 20
    rows = [span(str(n), str(n - 1) if n else "", n, 300, SpanName=name) for n in range(60)]

    lines = lines_of(rows, columns=columns, is_cut=True)[2:]

    assert max(map(text_width, lines)) <= max(columns, 19 + 10 + 3 + 30)


def test_colors_are_added_only_if_wanted() -> None:
    rows = [span("a", "", 0, 9, StatusCode="Error"), span("b", "a", 0, 1)]

    colored = lines_of(rows, has_colors=True)

    assert "\x1b[31m" in colored[2]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in colored] == lines_of(rows)


def test_control_and_direction_characters_are_not_printed() -> None:
    hostile = "\x1b[2J\u202e\n" + "x" * 100
    rows = [span("a", SpanName=hostile, ServiceName=hostile, StatusCode="Error", StatusMessage=hostile)]
    rows[0]["Links.TraceId"] = [hostile]

    lines = lines_of(rows)

    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)


@pytest.mark.timeout(60)
def test_line_of_a_very_deep_tree_is_not_longer_than_its_indentation_allows() -> None:
    rows = [span(str(n), str(n - 1) if n else "", n, 100_000) for n in range(10_000)]

    lines = lines_of(rows)

    assert len(lines) == 10_002
    assert max(map(len, lines)) < 150
