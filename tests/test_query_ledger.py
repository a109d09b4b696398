"""The ledger held against the table: what agrees, what differs, and what nobody can tell any more."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from receiver import transcode
from receiver.cli import main
from receiver.errors import MalformedBody
from receiver.journal.appender import Appender
from receiver.journal.segments import Journal
from receiver.model import ContentKind, Delivery, Heading, SegmentId
from receiver.query.ledger import Answer, Asked, Compared, asked_for, compare, ledger, lives_hours, verified
from receiver.settings import Ledger as Limits
from receiver.settings import Settings, Store
from receiver.storage.balance import Accounts, Backlog
from receiver.storage.dead import DeadLetters
from receiver.storage.embedded import EmbeddedStore
from receiver.storage.ledger import Ledger
from receiver.storage.ledger_lines import OTHER, Counts
from receiver.storage.progress import Progress
from receiver.storage.surroundings import Surroundings
from receiver.storage.writer import Writer
from tests import engines
from tests.journal_support import limits
from tests.segments import DIGEST_KEY
from tests.storehouse import a_ledger, a_window

HOUR = 500_000
NOW = Asked(since_hour=HOUR - 100, now_s=HOUR * 3_600.0)
POLICY = transcode.policy(Settings())


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
    asked = NOW._replace(lives_hours=lives)

    found = compare({place(): stored} if stored else {}, {place(): table}, complete_from, asked)

    assert found[place()].verdict == verdict


def test_projects_that_were_counted_together_are_compared_together() -> None:
    stored = {place("p"): 2, place(OTHER): 7, place("q", HOUR + 1): 1}
    table = {place("p"): 2, place("x"): 3, place("y"): 4, place("q", HOUR + 1): 1}

    found = compare(stored, table, 0, NOW)

    assert found == {
        place("p"): Compared(2, "same"),
        place(OTHER): Compared(7, "same"),
        place("q", HOUR + 1): Compared(1, "same"),
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
    assert asked_for({"since": since}, now_s=NOW.now_s + 60, lives_hours=None).since_hour == hour


def test_what_is_no_since_is_told_both_forms_of_it() -> None:
    with pytest.raises(MalformedBody, match="like 15m, or an instant, like 2026-01-31T10:00Z"):
        asked_for({"since": "yesterday"}, now_s=NOW.now_s, lives_hours=None)


@pytest.mark.parametrize("since", ["yesterday", "24", "9999-99-99"])
def test_any_other_since_is_refused(since: str) -> None:
    with pytest.raises(MalformedBody, match="since is"):
        asked_for({"since": since}, now_s=NOW.now_s, lives_hours=None)


def test_a_row_lives_as_long_as_late_spans_are_stored_as_they_are() -> None:
    assert lives_hours(Store(retention_days=30, late_margin_days=3)) == 72
    assert lives_hours(Store(retention_days=2, late_margin_days=3)) == 48
    assert lives_hours(Store(retention_days=0)) is None


@dataclass
class Site:
    """A journal, a writer and an engine, with real segments."""

    root: Path
    store: EmbeddedStore

    def __post_init__(self) -> None:
        self.appender = Appender(self.root / "journal", limits())
        self.ledger = a_ledger(self.root)
        self.accounts = Accounts(self.ledger, Backlog(self.root / "journal"))
        self.now_s = time.time()
        self.writer = Writer(
            Journal(self.root / "journal"),
            self.store,
            core=transcode,
            window=a_window(self.root),
            ledger=self.ledger,
            dead=DeadLetters(self.root / "dead"),
            progress=Progress(),
            around=Surroundings(time.time, lambda _: None, random.random, self.root / "repair", 30),
        )

    def send(self, project: str, spans: int, *, bad: int = 0) -> None:
        """Promise a delivery, in a segment of its own."""
        segment = self.appender.choose()
        done = transcode.commit(POLICY, [self._delivery(project, spans, bad)], segment, DIGEST_KEY)
        self.appender.append(segment, done.record, done.rows)
        self.appender.seal()

    def _delivery(self, project: str, spans: int, bad: int) -> Delivery:
        made = [
            {"traceId": f"{random.getrandbits(127) + 1:032x}" if n >= bad else "", "spanId": f"{n + 1:016x}",
             "startTimeUnixNano": str(int(self.now_s * 10**9))}
            for n in range(spans + bad)
        ]  # fmt: skip
        resource = {"attributes": [{"key": "platform.projectId", "value": {"stringValue": project}}]}
        body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": made}]}]})
        received_at_ns = int(self.now_s * 10**9)
        return Delivery(
            "d", body.encode(), ContentKind.JSON, (), received_at_ns, strict=False, body_bytes_max=1 << 20
        )

    def asked(self, **more: str) -> Answer:
        asked = asked_for({"since": "2h", "verify": "1", **more}, now_s=time.time(), lives_hours=72)
        return ledger(self.accounts, lambda: self.store, asked)


@pytest.fixture
def site(tmp_path: Path, engine_dir: Path) -> Iterator[Site]:
    with engines.embedded(engine_dir) as store:
        yield Site(tmp_path, store)


def by_project(answer: Answer) -> dict[str, tuple[int, int, int, int, int | None, str]]:
    return {
        one.project: (one.received, one.stored, one.rejected, one.journal, one.table, one.verdict)
        for one in answer.lines
    }


def test_what_is_stored_agrees_and_what_waits_is_in_the_journal(site: Site) -> None:
    site.send("a", 3)
    site.send("b", 2, bad=1)
    site.writer.drain()
    site.send("a", 4)

    answer = site.asked()

    assert by_project(answer) == {"a": (7, 3, 0, 4, 3, "same"), "b": (3, 2, 1, 0, 2, "same")}
    assert all(one.difference == 0 for one in answer.lines)
    assert {one.project for one in site.asked(project="a").lines} == {"a"}
    assert site.asked(drain="other").lines == []


def test_rows_of_others_are_not_ours(site: Site, tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    other = Site(tmp_path / "replica", site.store)
    for one in (site, other):
        one.send("a", 3)
        one.writer.drain()
    foreign = "(Timestamp, ProjectId, ReceivedAt) VALUES (now64(9), 'a', now64(3))"
    site.store.command(f"INSERT INTO otel_traces {foreign}")

    assert by_project(site.asked()) == {"a": (3, 3, 0, 0, 3, "same")}
    assert by_project(other.asked()) == {"a": (3, 3, 0, 0, 3, "same")}


@pytest.mark.parametrize(
    ("harm", "table"),
    [
        pytest.param("ALTER TABLE otel_traces DELETE WHERE", 0, id="lost"),
        pytest.param("INSERT INTO otel_traces SELECT * FROM otel_traces WHERE", 6, id="doubled"),
    ],
)
def test_harm_done_to_the_table_is_reported(site: Site, harm: str, table: int) -> None:
    site.send("a", 3)
    site.send("b", 2)
    site.writer.drain()
    site.store.command(f"{harm} ProjectId = 'a' SETTINGS mutations_sync = 2")

    assert by_project(site.asked()) == {"a": (3, 3, 0, 0, table, "different"), "b": (2, 2, 0, 0, 2, "same")}


@pytest.mark.parametrize("when", ["before the count", "after the count"])
def test_what_is_carried_while_the_table_is_counted_is_left_out_on_both_sides(site: Site, when: str) -> None:
    site.send("a", 3)
    site.writer.drain()
    site.send("a", 4)
    counts = []

    class Interrupted:
        """The engine, while the writer works."""

        def rows(self, statement: str, parameters: object) -> list[tuple[object, ...]]:
            counts.append(1)
            if when == "before the count":
                site.writer.drain()
            found = site.store.rows(statement, parameters)  # type: ignore[arg-type]
            if when == "after the count":
                site.writer.drain()
            return found

    asked = asked_for({"since": "2h"}, now_s=time.time(), lives_hours=72)
    balance, compared = verified(site.accounts, Interrupted(), asked)  # type: ignore[arg-type]

    assert len(counts) == 1
    assert [one.verdict for one in compared.values()] == ["same"]
    assert sum(counts.stored for counts in balance.sums.lines.values()) == 7


def test_a_segment_inserted_but_not_booked_is_in_the_journal_only(site: Site) -> None:
    site.send("a", 3)
    [segment] = Journal(site.root / "journal").sealed()
    site.store.insert(segment.path, token="x", query_id="trace-drain-x")

    assert by_project(site.asked()) == {"a": (3, 0, 0, 3, None, "")}


def segment(seq: int) -> SegmentId:
    return SegmentId(7, seq)


LIMITS = {"TRACE_DRAIN_LEDGER__HOURS_MAX": "2"}


def run(data: Path, *words: str) -> tuple[int, str]:
    result = CliRunner(env=LIMITS).invoke(main, ["ledger", "--data", str(data), *words])
    return result.exit_code, result.output


def test_the_command_prints_lines_and_totals_without_a_receiver(tmp_path: Path) -> None:
    book = a_ledger(tmp_path)
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
    a_ledger(tmp_path).book(segment(1), {Heading("d", "p", hour): Counts(received=3, stored=2)})

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
