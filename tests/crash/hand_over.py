"""A child that takes deliveries in and hands them over to a store, and says on standard output what it did.

    python -m tests.crash.hand_over DATA

    issued 3            delivery 3 is sent to it
    acknowledged 3      what a 200 says
    stored TOKEN EPOCH SEQ DAY ROWS    the store, which outlives it, has these rows under this token

Segments with small blocks that are rewritten, copies in the same segment and in later ones, a start that
stops and one that does not, a window that begins a new generation: what a hand-over can meet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from receiver import transcode
from receiver.dead_letters.letter_files import DeadLetters
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
from tests.support.journal import limits, look_after
from tests.support.redelivery import POLICY, delivery, rows_in
from tests.support.segments import DIGEST_KEY

Say = Callable[[str], None]

WINDOW = Redelivery(entries_max=36)
"""A generation of it holds three."""
TRIES = 3


class TellingStore(MemoryStore):
    """It says what it keeps, for it will be asked when this process is gone."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def _meets_ok(self, meets: str, rows: Rows, token: str, query_id: str) -> None:
        super()._meets_ok(meets, rows, token, query_id)
        for day, (segment, row_count) in rows.items():
            self._say(f"stored {token} {segment.epoch} {segment.seq} {day} {row_count}")


def aloud(line: str) -> None:
    """Tell the parent, in one write."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def intake_of(data: Path) -> Appender:
    """An intake's start. A second passes while it looks at its clock a few times."""
    setting_keys = limits(segment_rows_max=8, segment_age_ms_max=1_000_000)
    return Appender(data / "journal", setting_keys, now=count(1.0, 0.25).__next__)


def take_in(journal: Appender, say: Say, *numbers: int) -> None:
    """Commit these deliveries as one record; the sender tries again when it is told to."""
    for number in numbers:
        say(f"issued {number}")
    for _ in range(TRIES):
        segment = journal.choose()
        done = transcode.commit(POLICY, [delivery(number) for number in numbers], segment, DIGEST_KEY)
        with suppress(Unavailable):
            journal.append(segment, done.record, done.rows)
            for number in numbers:
                say(f"acknowledged {number}")
            return
        look_after(journal)


def ledger_of(data: Path) -> Ledger:
    """The ledger that lies there."""
    return Ledger(data / "ledger", LedgerLimits(), lambda: NOW_S, is_first=True)


def writer_of(data: Path, store: MemoryStore, window: Window, ledger: Ledger, progress: Progress) -> Writer:
    """A writer's next life on this data directory."""
    store.rows_of = rows_in
    around = Environment(
        now=lambda: NOW_S,
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
        environment=around,
    )


def live(data: Path, say: Say) -> None:
    """Two starts of an intake and one writer."""
    window = Window(data / "redelivery", WINDOW, lambda: 0.0)
    writer = writer_of(data, TellingStore(say), window, ledger_of(data), Progress())
    first = intake_of(data)
    for numbers in [(0,), (1, 0), (2,), (3, 1), (4,)]:
        take_in(first, say, *numbers)
    writer.drain()
    second = intake_of(data)
    take_in(second, say, 5, 2)
    take_in(first, say, 6)
    first.close()
    writer.drain()
    take_in(second, say, 6, 3)
    take_in(second, say, 7)
    second.seal()
    writer.drain()
    writer.drain()
    take_in(second, say, 7)


if __name__ == "__main__":
    live(Path(sys.argv[1]), aloud)
