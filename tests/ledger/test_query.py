"""Tests of the ledger compared with the table: same, different or no longer verifiable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from receiver.cli import main
from receiver.errors import MalformedBody
from receiver.ledger.ledger import Ledger
from receiver.ledger.line_sums import CHECKSUMS, OTHER, Counts
from receiver.ledger.query import LedgerQuery, compare, parse_ledger_query, row_lifetime_hours
from receiver.ledger.table import Rows
from receiver.model import Heading, SegmentId
from receiver.settings import Ledger as Limits
from receiver.settings import Store
from tests.support.fake_clickhouse import open_ledger

HOUR = 500_000
NOW = LedgerQuery(since_hour=HOUR - 100, now_s=HOUR * 3_600.0)


def heading_of(project: str = "p", hour: int = HOUR) -> Heading:
    return Heading("d", project, hour)


@pytest.mark.parametrize(
    ("stored", "table", "complete_from", "lifetime_hours", "verdict"),
    [
        pytest.param(5, 5, 0, None, "same", id="equal"),
        pytest.param(5, 4, 0, None, "different", id="rows lost"),
        pytest.param(5, 6, 0, None, "different", id="rows duplicated"),
        pytest.param(0, 6, 0, None, "different", id="missing in the ledger"),
        pytest.param(5, 4, 0, 72, "different", id="rows lost, too young to expire"),
        pytest.param(5, 4, 0, 1, "unverifiable", id="rows may have expired"),
        pytest.param(5, 6, 0, 1, "different", id="expiry does not add rows"),
        pytest.param(5, 6, HOUR + 1, None, "unverifiable", id="before the ledger was complete"),
        pytest.param(5, 5, HOUR + 1, 1, "same", id="equal although unverifiable"),
    ],
)
def test_verdict_of_a_ledger_line(
    stored: int, table: int, complete_from: int, lifetime_hours: int | None, verdict: str
) -> None:
    query = NOW._replace(row_lifetime_hours=lifetime_hours)

    ledger_rows = {heading_of(): Rows(stored)} if stored else {}

    comparison = compare(ledger_rows, {heading_of(): Rows(table)}, complete_from, query)

    assert comparison[heading_of()].verdict == verdict
    assert bool(comparison[heading_of()].problem) == (verdict != "same")


def test_projects_counted_as_other_are_compared_together() -> None:
    stored = {heading_of("p"): Rows(2, 5), heading_of(OTHER): Rows(7, 1), heading_of("q", HOUR + 1): Rows(1)}
    table = {
        heading_of("p"): Rows(2, 5),
        heading_of("x"): Rows(3, CHECKSUMS - 1),
        heading_of("y"): Rows(4, 2),
        heading_of("q", HOUR + 1): Rows(1),
    }

    comparison = compare(stored, table, 0, NOW)

    assert {heading: (line.table, line.verdict) for heading, line in comparison.items()} == {
        heading_of("p"): (2, "same"),
        heading_of(OTHER): (7, "same"),
        heading_of("q", HOUR + 1): (1, "same"),
    }


@pytest.mark.parametrize(
    ("since", "hour"),
    [
        ("24h", HOUR - 24),
        ("90m", HOUR - 2),
        ("2027-01-15T08:30Z", HOUR),
        ("2027-01-15", HOUR - 8),
        ("99999d", 0),
    ],
)
def test_since_is_an_age_or_an_instant_rounded_to_hours(since: str, hour: int) -> None:
    assert (
        parse_ledger_query({"since": since}, now_s=NOW.now_s + 60, row_lifetime_hours=None).since_hour == hour
    )


@pytest.mark.parametrize("since", ["yesterday", "24", "9999-99-99"])
def test_invalid_since_is_refused_with_both_forms(since: str) -> None:
    with pytest.raises(MalformedBody, match=r"since is .*like 15m, or an instant, like 2026-01-31T10:00Z"):
        parse_ledger_query({"since": since}, now_s=NOW.now_s, row_lifetime_hours=None)


def test_row_lifetime_is_the_late_margin_limited_by_the_retention() -> None:
    assert row_lifetime_hours(Store(retention_days=30, late_margin_days=3)) == 72
    assert row_lifetime_hours(Store(retention_days=2, late_margin_days=3)) == 48
    assert row_lifetime_hours(Store(retention_days=0)) is None


def segment(seq: int) -> SegmentId:
    return SegmentId(7, seq)


LIMITS = {"TRACE_DRAIN_LEDGER__HOURS_MAX": "2"}


def run(data: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner(env=LIMITS).invoke(main, ["ledger", "--data", str(data), *arguments])
    return result.exit_code, result.output


def test_ledger_command_prints_lines_and_totals_without_a_receiver(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    hour = int(time.time() // 3_600)
    lines = {
        Heading("d", "p", hour): Counts(received=10, stored=6, rejected=4),
        Heading("e", "q", hour): Counts(received=1_000, duplicate=1_000),
        Heading("d", "old", hour - 100): Counts(received=5, stored=5),
    }
    for seq, (heading, counts) in enumerate(lines.items()):
        ledger.record(segment(seq), {heading: counts})

    code, text = run(tmp_path)
    _, json_text = run(tmp_path, "--format", "json", "--since", "200h", "--drain", "d")

    assert code == 0
    assert [line.split() for line in text.splitlines()[1:]] == [
        [text.splitlines()[1].split()[0], "d", "p", "10", "6", "0", "4", "0", "0", "0", "0", "0"],
        [text.splitlines()[1].split()[0], "e", "q", "1000", "0", "0", "0", "1000", "0", "0", "0", "0"],
        ["total", "1010", "6", "0", "4", "1000", "0", "0", "0", "0"],
    ]
    assert [line["project"] for line in json.loads(json_text)["lines"]] == ["old", "p"]


def test_unaccounted_span_makes_the_command_fail(tmp_path: Path) -> None:
    hour = int(time.time() // 3_600)
    open_ledger(tmp_path).record(segment(1), {Heading("d", "p", hour): Counts(received=3, stored=2)})

    code, text = run(tmp_path)

    assert code == 1
    assert text.splitlines()[1].split()[-1] == "1"


def test_ledger_with_small_limits_prints_since_when_it_is_complete(tmp_path: Path) -> None:
    hour = int(time.time() // 3_600)
    ledger = Ledger(tmp_path / "ledger", Limits(hours_max=2), time.time, is_first=True)
    for ago in (2, 1, 0):
        ledger.record(segment(ago), {Heading("d", "p", hour - ago): Counts(received=3, stored=3)})

    _, text = run(tmp_path, "--since", "99999d")

    assert text.splitlines()[1].split()[:3] == ["older", "d", "(other)"]
    assert "complete from" in text


def cut_last_entry(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.read_bytes().rindex(b"TDLG")])


def flip_last_byte(log: Path) -> None:
    content = log.read_bytes()
    log.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def restore_older_copy(log: Path) -> None:
    log.write_bytes((log.parent.parent / "copy").read_bytes())


@pytest.mark.parametrize("damage", [cut_last_entry, flip_last_byte, restore_older_copy])
def test_lost_ledger_entries_make_the_command_fail_until_acknowledged(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    hour = int(time.time() // 3_600)
    ledger, log = open_ledger(tmp_path), tmp_path / "ledger" / "0000000001.log"
    for seq in range(3):
        (tmp_path / "copy").write_bytes(log.read_bytes())
        ledger.record(segment(seq), {Heading("d", "p", hour): Counts(received=3, stored=3)})
    ledger.close()
    assert run(tmp_path)[0] == 0

    damage(log)
    before_start = run(tmp_path)
    open_ledger(tmp_path).close()
    after_start = run(tmp_path)
    (tmp_path / "ledger.lost").unlink()

    assert (before_start[0], after_start[0]) == (1, 1)
    for text in (before_start[1], after_start[1]):
        assert "ledger is missing or damaged" in text
        assert "the last 1 of 4 entries are missing" in text
    assert run(tmp_path)[0] == 0
