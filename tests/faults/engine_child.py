"""The embedded engine in a process that may be killed, or starved of its disk, at any moment.

    python -m tests.faults.engine_child DIRECTORY VERB …

    create [STARVED_AT]   the store and its tables
    insert NUMBER         the segment of this number, in one statement
    recover COUNT         what a writer does that finds so many of them
    poisoned              a failed statement, then an INSERT

Prints one JSON object at its end. Segments are the same bytes in every process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from receiver.dead_letters.letter_files import DeadLetters
from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.errors import OperatorError, StoreTrouble
from receiver.ledger.ledger import Ledger
from receiver.redelivery.window import Window
from receiver.settings import Ledger as LedgerLimits
from receiver.settings import Redelivery
from receiver.writer.environment import Environment
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support import engines
from tests.support.fake_clickhouse import NOW_S, FakeFile, FakeJournal, schema_sources
from tests.support.segments import Segment, SegmentMaker

AGES_DAYS = (0, 0, 1, 2, 2, 2)


def segments(directory: Path, count: int) -> tuple[SegmentMaker, list[Segment]]:
    """Write the first segments, the same in every process."""
    (directory / "segments").mkdir(exist_ok=True)
    maker = SegmentMaker(directory / "segments")
    return maker, [maker.make(*AGES_DAYS) for _ in range(count)]


def opened(directory: Path) -> EmbeddedStore:
    return engines.bare(directory / "data" / "store", "faults")


def create(directory: Path, starved_at: str = "") -> dict[str, object]:
    """Make a store. From a moment on (`open`, `schema`) the disk refuses to let files grow; then die."""
    if starved_at == "open":
        starve()
    store = opened(directory)
    if starved_at == "schema":
        starve()
    schema.apply(store, schema_sources(), 30)
    if starved_at:
        os.kill(os.getpid(), signal.SIGKILL)
    _, (segment,) = segments(directory, 1)
    store.insert(segment.path, token=f"{segment.held.segment}#0", query_id="trace-drain-first")
    store.close()
    return {}


def starve() -> None:
    """No file grows any more."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def insert(directory: Path, number: str) -> dict[str, object]:
    """Send one segment, and tell what the engine said."""
    _, made = segments(directory, int(number))
    store, segment = opened(directory), made[-1]
    name = f"{segment.held.segment}#0"
    try:
        store.insert(segment.path, token=name, query_id=f"trace-drain-{name}")
    except (StoreTrouble, OperatorError) as trouble:
        return {"said": str(trouble)}
    return {"said": "ok"}


def recover(directory: Path, count: str) -> dict[str, object]:
    """Carry every segment as a writer that has just started."""
    maker, made = segments(directory, int(count))
    files = [FakeFile(one.held.segment, one.path) for one in made]
    store = opened(directory)
    progress, naps = Progress(), 0

    def sleep(delay_s: float) -> None:
        nonlocal naps
        naps += bool(delay_s)
        assert naps < 100, progress.trouble

    around = Environment(
        now=lambda: NOW_S,
        sleep=sleep,
        jitter=lambda: 0.0,
        repair_dir=directory / "data" / "repair",
        retention_days=30,
    )
    Writer(
        FakeJournal(files),
        store,
        core=maker,
        ledger=Ledger(directory / "data" / "ledger", LedgerLimits(), lambda: NOW_S, is_first=True),
        window=Window(directory / "data" / "redelivery", Redelivery(), time.monotonic),
        dead=DeadLetters(directory / "data" / "dead"),
        progress=progress,
        environment=around,
    ).drain()
    return found_in(store, made, directory) | {"left": sum(one.path.exists() for one in made)}


def found_in(store: EmbeddedStore, made: list[Segment], directory: Path) -> dict[str, object]:
    """Compare what is stored with what must be."""
    counts = store.counts([one.held for one in made])
    wrong = [one.held.segment.seq for one in made if dict(counts.get(one.held.segment, {})) != one.days]
    rows = store.rows(
        "SELECT count(), uniqExact(SegmentSeq, SpanId), "
        "countIf(SpanAttributes['k'] != concat('v', toString(Duration - 9223372036854775808))) "
        "FROM otel_traces"
    )[0]
    traces = store.rows(
        "SELECT uniqExact(TraceId) FROM otel_traces WHERE TraceId NOT IN "
        "(SELECT TraceId FROM otel_traces_trace_id_ts)"
    )
    return {
        "wrong": wrong,
        "rows": rows,
        "not_in_companion": traces[0][0],
        "dead": len(list((directory / "data" / "dead").glob("*"))),
    }


def poisoned(directory: Path) -> dict[str, object]:
    """Fail in the middle of an answer, in the thread that inserts next."""
    _, (segment,) = segments(directory, 1)
    store = opened(directory)
    for number in range(3):
        try:
            store.rows("SELECT throwIf(number = 90000) FROM numbers(100000)")
        except StoreTrouble:
            store.insert(segment.path, token=f"{segment.held.segment}#{number}", query_id="trace-drain-after")
    return {"rows": store.rows("SELECT count() FROM otel_traces")[0][0]}


if __name__ == "__main__":
    verbs: dict[str, Callable[..., dict[str, object]]] = {
        "create": create,
        "insert": insert,
        "recover": recover,
        "poisoned": poisoned,
    }
    answer = verbs[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:])
    print(json.dumps(answer))  # noqa: T201 - how it is told
