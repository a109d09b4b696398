"""Child process with the embedded engine, which a test may kill or deprive of disk space at any moment.

    python -m tests.faults.engine_child DIRECTORY COMMAND …

    create [DISK_FULL_AT]   create the store and its tables
    insert NUMBER           insert the segment of this number in one statement
    recover COUNT           run a writer that finds the first COUNT segments in the journal
    poisoned                INSERT after a failed statement on the same connection

Prints one JSON object at the end. The segments have the same bytes in every process.
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

from receiver.dead_letters.directory import DeadLetters
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
from tests.support.segments import Segment, SegmentMaker, stored_days

AGES_DAYS = (0, 0, 1, 2, 2, 2)


def segments(directory: Path, count: int) -> tuple[SegmentMaker, list[Segment]]:
    """Write the first `count` segments."""
    (directory / "segments").mkdir(exist_ok=True)
    maker = SegmentMaker(directory / "segments")
    return maker, [maker.make(*AGES_DAYS) for _ in range(count)]


def open_store(directory: Path) -> EmbeddedStore:
    return engines.bare(directory / "data" / "store", "faults")


def create(directory: Path, disk_full_at: str = "") -> dict[str, object]:
    """Create a store. From `disk_full_at` (`open`, `schema`) on, files cannot grow; then exit by SIGKILL."""
    if disk_full_at == "open":
        stop_file_growth()
    store = open_store(directory)
    if disk_full_at == "schema":
        stop_file_growth()
    schema.apply(store, schema_sources(), 30)
    if disk_full_at:
        os.kill(os.getpid(), signal.SIGKILL)
    _, (segment,) = segments(directory, 1)
    store.insert(segment.path, token=f"{segment.location.segment}#0", query_id="trace-drain-first")
    store.close()
    return {}


def stop_file_growth() -> None:
    """Limit the size of every file to 0 bytes, so that no write extends a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def insert(directory: Path, number: str) -> dict[str, object]:
    """Insert one segment and return the engine's result."""
    _, made = segments(directory, int(number))
    store, segment = open_store(directory), made[-1]
    name = f"{segment.location.segment}#0"
    try:
        store.insert(segment.path, token=name, query_id=f"trace-drain-{name}")
    except (StoreTrouble, OperatorError) as error:
        return {"result": str(error)}
    return {"result": "ok"}


def recover(directory: Path, count: str) -> dict[str, object]:
    """Run a newly started writer until every segment is stored."""
    maker, segments_made = segments(directory, int(count))
    files = [FakeFile(segment.location.segment, segment.path) for segment in segments_made]
    store = open_store(directory)
    progress, waits = Progress(), 0

    def sleep(delay_s: float) -> None:
        nonlocal waits
        waits += bool(delay_s)
        assert waits < 100, progress.trouble

    environment = Environment(
        now=lambda: NOW_S,
        monotonic=time.monotonic,
        sleep=sleep,
        jitter=lambda: 0.0,
        repair_dir=directory / "data" / "repair",
        retention_days=30,
    )
    writer = Writer(
        FakeJournal(files),
        store,
        core=maker,
        ledger=Ledger(directory / "data" / "ledger", LedgerLimits(), lambda: NOW_S, is_first=True),
        window=Window(directory / "data" / "redelivery", Redelivery(), time.monotonic),
        dead=DeadLetters(directory / "data" / "dead"),
        progress=progress,
        environment=environment,
    )
    while writer.drain():
        pass
    return compare_store(store, segments_made, directory) | {
        "left": sum(segment.path.exists() for segment in segments_made)
    }


def compare_store(store: EmbeddedStore, segments_made: list[Segment], directory: Path) -> dict[str, object]:
    """Compare the stored rows with the expected ones."""
    wrong = [
        segment.location.segment.seq
        for segment in segments_made
        if stored_days(store, segment) != segment.days
    ]
    rows = store.rows(
        "SELECT count(), uniqExact(TraceId, SpanId), "
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
    """Insert after a statement failed in the middle of its result, in the same thread."""
    _, (segment,) = segments(directory, 1)
    store = open_store(directory)
    for number in range(3):
        try:
            store.rows("SELECT throwIf(number = 90000) FROM numbers(100000)")
        except StoreTrouble:
            store.insert(
                segment.path, token=f"{segment.location.segment}#{number}", query_id="trace-drain-after"
            )
    return {"rows": store.rows("SELECT count() FROM otel_traces")[0][0]}


if __name__ == "__main__":
    verbs: dict[str, Callable[..., dict[str, object]]] = {
        "create": create,
        "insert": insert,
        "recover": recover,
        "poisoned": poisoned,
    }
    answer = verbs[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:])
    print(json.dumps(answer))  # noqa: T201 - the parent process reads it
