"""The ledger held against the table: what agrees, what differs, and what nobody can tell any more."""

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
from receiver.model import Heading, SegmentId
from receiver.query.ledger import LedgerQuery, compare, parse_ledger_query, row_lifetime_hours
from receiver.query.ledger_table import Rows
from receiver.settings import Ledger as Limits
from receiver.settings import Store
from tests.support.fake_clickhouse import open_ledger

HOUR = 500_000
NOW = LedgerQuery(since_hour=HOUR - 100, now_s=HOUR * 3_600.0)


def place(project: str = "p", hour: int = HOUR) -> Heading:
    return Heading("d", project, hour)


@pytest.mark.parametrize(
    ("stored", "table", "complete_from", "lives", "verdict"),
    [
        pytest.param(5, 5, 0, None, "same", id="as it should be"),
        pytest.param(5, 4, 0, None, "different", id="lost"),
        pytest.param(5, 6, 0, None, "different", id="doubled"),
        pytest.param(0, 6, 0, None, "different", id="never booked"),
        pytest.param(5, 4, 0, 72, "different", id="lost, and too young to expire"),
        pytest.param(5, 4, 0, 1, "unverifiable", id="may have expired"),
        pytest.param(5, 6, 0, 1, "different", id="nothing expires into being"),
        pytest.param(5, 6, HOUR + 1, None, "unverifiable", id="before the ledger was complete"),
        pytest.param(5, 5, HOUR + 1, 1, "same", id="agrees whatever could have been"),
    ],
)
def test_a_line_is_held_against_the_table(
    stored: int, table: int, complete_from: int, lives: int | None, verdict: str
) -> None:
    asked = NOW._replace(row_lifetime_hours=lives)

    expected = {place(): Rows(stored)} if stored else {}

    found = compare(expected, {place(): Rows(table)}, complete_from, asked)

    assert found[place()].verdict == verdict
    assert bool(found[place()].problem) == (verdict != "same")


def test_projects_that_were_counted_together_are_compared_together() -> None:
    stored = {place("p"): Rows(2, 5), place(OTHER): Rows(7, 1), place("q", HOUR + 1): Rows(1)}
    table = {
        place("p"): Rows(2, 5),
        place("x"): Rows(3, CHECKSUMS - 1),
        place("y"): Rows(4, 2),
        place("q", HOUR + 1): Rows(1),
    }

    found = compare(stored, table, 0, NOW)

    assert {heading: (one.table, one.verdict) for heading, one in found.items()} == {
        place("p"): (2, "same"),
        place(OTHER): (7, "same"),
        place("q", HOUR + 1): (1, "same"),
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
def test_since_is_an_age_or_an_instant_and_means_whole_hours(since: str, hour: int) -> None:
    assert (
        parse_ledger_query({"since": since}, now_s=NOW.now_s + 60, row_lifetime_hours=None).since_hour == hour
    )


def test_what_is_no_since_is_told_both_forms_of_it() -> None:
    with pytest.raises(MalformedBody, match="like 15m, or an instant, like 2026-01-31T10:00Z"):
        parse_ledger_query({"since": "yesterday"}, now_s=NOW.now_s, row_lifetime_hours=None)


@pytest.mark.parametrize("since", ["yesterday", "24", "9999-99-99"])
def test_any_other_since_is_refused(since: str) -> None:
    with pytest.raises(MalformedBody, match="since is"):
        parse_ledger_query({"since": since}, now_s=NOW.now_s, row_lifetime_hours=None)


def test_a_row_lives_as_long_as_late_spans_are_stored_as_they_are() -> None:
    assert row_lifetime_hours(Store(retention_days=30, late_margin_days=3)) == 72
    assert row_lifetime_hours(Store(retention_days=2, late_margin_days=3)) == 48
    assert row_lifetime_hours(Store(retention_days=0)) is None


def segment(seq: int) -> SegmentId:
    return SegmentId(7, seq)


LIMITS = {"TRACE_DRAIN_LEDGER__HOURS_MAX": "2"}


def run(data: Path, *words: str) -> tuple[int, str]:
    result = CliRunner(env=LIMITS).invoke(main, ["ledger", "--data", str(data), *words])
    return result.exit_code, result.output


def test_the_command_prints_lines_and_totals_without_a_receiver(tmp_path: Path) -> None:
    book = open_ledger(tmp_path)
    hour = int(time.time() // 3_600)
    lines = {
        Heading("d", "p", hour): Counts(received=10, stored=6, rejected=4),
        Heading("e", "q", hour): Counts(received=1_000, duplicate=1_000),
        Heading("d", "old", hour - 100): Counts(received=5, stored=5),
    }
    for seq, (heading, counts) in enumerate(lines.items()):
        book.book(segment(seq), {heading: counts})

    code, text = run(tmp_path)
    _, said = run(tmp_path, "--format", "json", "--since", "200h", "--drain", "d")

    assert code == 0
    assert [line.split() for line in text.splitlines()[1:]] == [
        [text.splitlines()[1].split()[0], "d", "p", "10", "6", "0", "4", "0", "0", "0", "0"],
        [text.splitlines()[1].split()[0], "e", "q", "1000", "0", "0", "0", "1000", "0", "0", "0"],
        ["total", "1010", "6", "0", "4", "1000", "0", "0", "0"],
    ]
    assert [one["project"] for one in json.loads(said)["lines"]] == ["old", "p"]


def test_a_span_that_is_nowhere_makes_the_command_fail(tmp_path: Path) -> None:
    hour = int(time.time() // 3_600)
    open_ledger(tmp_path).book(segment(1), {Heading("d", "p", hour): Counts(received=3, stored=2)})

    code, text = run(tmp_path)

    assert code == 1
    assert text.splitlines()[1].split()[-1] == "1"


def test_a_ledger_with_small_limits_says_from_when_on_it_is_complete(tmp_path: Path) -> None:
    hour = int(time.time() // 3_600)
    book = Ledger(tmp_path / "ledger", Limits(hours_max=2), time.time, is_first=True)
    for ago in (2, 1, 0):
        book.book(segment(ago), {Heading("d", "p", hour - ago): Counts(received=3, stored=3)})

    _, text = run(tmp_path, "--since", "99999d")

    assert text.splitlines()[1].split()[:3] == ["older", "d", "(other)"]
    assert "complete from" in text


def cut_last_entry(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.read_bytes().rindex(b"TDLG")])


def flip_last_byte(log: Path) -> None:
    content = log.read_bytes()
    log.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def put_older_copy_back(log: Path) -> None:
    log.write_bytes((log.parent.parent / "copy").read_bytes())


@pytest.mark.parametrize("harm", [cut_last_entry, flip_last_byte, put_older_copy_back])
def test_lost_history_makes_the_command_fail_until_it_is_acknowledged(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    hour = int(time.time() // 3_600)
    book, log = open_ledger(tmp_path), tmp_path / "ledger" / "0000000001.log"
    for seq in range(3):
        (tmp_path / "copy").write_bytes(log.read_bytes())
        book.book(segment(seq), {Heading("d", "p", hour): Counts(received=3, stored=3)})
    book.close()
    assert run(tmp_path)[0] == 0

    harm(log)
    at_rest = run(tmp_path)
    open_ledger(tmp_path).close()
    after_start = run(tmp_path)
    (tmp_path / "ledger.lost").unlink()

    assert (at_rest[0], after_start[0]) == (1, 1)
    for text in (at_rest[1], after_start[1]):
        assert "ledger is missing or damaged" in text
        assert "the last 1 of 4 entries are missing" in text
    assert run(tmp_path)[0] == 0
