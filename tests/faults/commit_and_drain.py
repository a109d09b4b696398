"""Child process that commits deliveries and drains them to a store, and prints what it did.

    python -m tests.faults.commit_and_drain DATA

    issued 3            delivery 3 is sent to it
    acknowledged 3      delivery 3 is answered with 200
    stored TOKEN EPOCH SEQ DAY ROWS    the store, which survives the process, has these rows under this token

The scenario contains segments with small blocks that are merged, copies in the same and in later segments,
an epoch that ends and one that does not, and a deduplication window that starts a new generation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from receiver import transcode
from receiver.dead_letters.directory import DeadLetters
from receiver.errors import Unavailable
from receiver.journal.appender import Appender
from receiver.journal.segments import Journal
from receiver.ledger.ledger import Ledger
from receiver.redelivery.window import Window
from receiver.settings import Ledger as LedgerLimits
from receiver.settings import Redelivery
from receiver.writer.environment import Environment
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support.fake_clickhouse import NOW_S, MemoryStore, Rows
from tests.support.journal import limits, maintain
from tests.support.redelivery import POLICY, delivery, rows_in
from tests.support.segments import DIGEST_KEY

Report = Callable[[str], None]

WINDOW = Redelivery(entries_max=36)
"""A generation of this window holds three segments."""
TRIES = 3


class ReportingStore(MemoryStore):
    """Store that prints every INSERT, for a check after this process is killed."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._say = report

    def _insert_ok(self, outcome: str, rows: Rows, token: str, query_id: str) -> None:
        super()._insert_ok(outcome, rows, token, query_id)
        for day, (segment, row_count) in rows.items():
            self._say(f"stored {token} {segment.epoch} {segment.seq} {day} {row_count}")


def print_line(line: str) -> None:
    """Print a line to the parent in one write."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def open_appender(data: Path) -> Appender:
    """Start an intake's journal. Its clock advances a second every few readings."""
    setting_keys = limits(segment_rows_max=8, segment_age_ms_max=1_000_000)
    return Appender(data / "journal", setting_keys, now=count(1.0, 0.25).__next__)


def commit_deliveries(journal: Appender, report: Report, *numbers: int) -> None:
    """Commit these deliveries as one record, with retries as a sender does."""
    for number in numbers:
        report(f"issued {number}")
    for _ in range(TRIES):
        segment = journal.choose()
        batch = transcode.commit(POLICY, [delivery(number) for number in numbers], segment, DIGEST_KEY)
        with suppress(Unavailable):
            journal.append(segment, batch.record, batch.rows)
            for number in numbers:
                report(f"acknowledged {number}")
            return
        maintain(journal)


def open_ledger(data: Path) -> Ledger:
    """Open the ledger of this data directory."""
    return Ledger(data / "ledger", LedgerLimits(), lambda: NOW_S, is_first=True)


def new_writer(  # noqa: PLR0913 - a writer's dependencies
    data: Path,
    store: MemoryStore,
    window: Window,
    ledger: Ledger,
    progress: Progress,
    *,
    now_s: Callable[[], float] = lambda: NOW_S,
) -> Writer:
    """Create a writer as a new process does: it knows only the disk and the store."""
    store.rows_of = rows_in
    environment = Environment(
        now=now_s,
        monotonic=now_s,
        sleep=lambda _delay_s: None,
        jitter=lambda: 0.0,
        repair_dir=data / "repair",
        retention_days=30,
    )
    return Writer(
        Journal(data / "journal"),
        store,
        core=transcode,
        window=window,
        ledger=ledger,
        dead=DeadLetters(data / "dead"),
        progress=progress,
        environment=environment,
    )


def run_scenario(data: Path, report: Report) -> None:
    """Run two intakes and one writer."""
    window = Window(data / "redelivery", WINDOW, lambda: 0.0)
    writer = new_writer(data, ReportingStore(report), window, open_ledger(data), Progress())
    first = open_appender(data)
    for numbers in [(0,), (1, 0), (2,), (3, 1), (4,)]:
        commit_deliveries(first, report, *numbers)
    writer.drain()
    second = open_appender(data)
    commit_deliveries(second, report, 5, 2)
    commit_deliveries(first, report, 6)
    first.close()
    writer.drain()
    commit_deliveries(second, report, 6, 3)
    commit_deliveries(second, report, 7)
    second.seal()
    writer.drain()
    writer.drain()
    commit_deliveries(second, report, 7)


if __name__ == "__main__":
    run_scenario(Path(sys.argv[1]), print_line)
