"""Child process with the embedded engine, which a test may kill or deprive of disk space at any moment.

    python -m tests.faults.engine_child DIRECTORY COMMAND …

    create [DISK_FULL_AT]   create the store and its tables
    insert NUMBER           insert the segment of this number in one statement
    recover COUNT           run a writer that finds the first COUNT segments in the journal
    poisoned                INSERT after a failed statement on the same connection
    full_insert, full_refill, full_merge    the disk refuses writes meanwhile
    distributed             trial INSERT over a `Distributed` table

Prints one JSON object at the end. The segments have the same bytes in every process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from receiver.dead_letters.directory import DeadLetters
from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.errors import OperatorError, StoreTrouble
from receiver.writer.environment import Environment
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support import engines
from tests.support.fake_clickhouse import (
    NOW_S,
    FakeFile,
    FakeJournal,
    open_ledger,
    open_window,
    schema_sources,
)
from tests.support.segments import Segment, SegmentMaker, stored_days

AGES_DAYS = (0, 0, 1, 2, 2, 2)
FILE_BYTES_MAX = 10_000
REFILLED_FILE_BYTES_MAX = 1_000
MERGED_FILE_BYTES_MAX = 2_000
"""Below the largest file of a merged part of 4,000 small rows."""
CLUSTER = (
    "<clickhouse><remote_servers><local><shard><replica><host>127.0.0.1</host><port>9</port></replica></shard>"
    "</local></remote_servers></clickhouse>"
)
Output = dict[str, object]


def segments(directory: Path, count: int) -> tuple[SegmentMaker, list[Segment]]:
    """Write the first `count` segments."""
    maker = segment_maker(directory)
    return maker, [maker.make(*AGES_DAYS) for _ in range(count)]


def segment_maker(directory: Path) -> SegmentMaker:
    (directory / "segments").mkdir(exist_ok=True)
    return SegmentMaker(directory / "segments")


def open_store(directory: Path) -> EmbeddedStore:
    return engines.bare(directory / "data" / "store", "faults")


def new_store(directory: Path) -> EmbeddedStore:
    """Open a store with tables."""
    store = open_store(directory)
    schema.apply(store, schema_sources(), 30)
    return store


def insert_first(store: EmbeddedStore, segment: Segment) -> None:
    """Insert a segment as a writer does at first."""
    name = f"{segment.location.segment}#0"
    store.insert(segment.path, token=name, query_id=f"trace-drain-{name}")


def create(directory: Path, disk_full_at: str = "") -> Output:
    """Create a store. From `disk_full_at` (`open`, `schema`) on, files cannot grow; then exit by SIGKILL."""
    if disk_full_at == "open":
        limit_file_size(0)
    store = open_store(directory)
    if disk_full_at == "schema":
        limit_file_size(0)
    schema.apply(store, schema_sources(), 30)
    if disk_full_at:
        os.kill(os.getpid(), signal.SIGKILL)
    _, (segment,) = segments(directory, 1)
    insert_first(store, segment)
    store.close()
    return {}


def limit_file_size(bytes_max: int) -> tuple[int, int]:
    """Limit the size of every file, so that no write extends a file beyond it. Returns the limits before."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    return before


@contextmanager
def file_size_limited(bytes_max: int) -> Iterator[None]:
    """Limit the size of every file until the block ends."""
    before = limit_file_size(bytes_max)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def insert(directory: Path, number: str) -> Output:
    """Insert one segment and return the engine's result."""
    _, made = segments(directory, int(number))
    try:
        insert_first(open_store(directory), made[-1])
    except (StoreTrouble, OperatorError) as error:
        return {"result": str(error)}
    return {"result": "ok"}


def recover(directory: Path, count: str) -> Output:
    """Run a newly started writer until every segment is stored."""
    maker, segments_made = segments(directory, int(count))
    files = [FakeFile(segment.location.segment, segment.path) for segment in segments_made]
    store, data = open_store(directory), directory / "data"
    progress, waits = Progress(), 0

    def sleep(delay_s: float) -> None:
        nonlocal waits
        waits += bool(delay_s)
        assert waits < 100, progress.trouble

    writer = Writer(
        FakeJournal(files),
        store,
        core=maker,
        ledger=open_ledger(data),
        window=open_window(data),
        dead=DeadLetters(data / "dead"),
        progress=progress,
        environment=Environment(lambda: NOW_S, time.monotonic, sleep, lambda: 0.0, data / "repair", 30),
    )
    while writer.drain():
        pass
    return compare_store(store, segments_made, directory) | {
        "left": sum(segment.path.exists() for segment in segments_made)
    }


def compare_store(store: EmbeddedStore, segments_made: list[Segment], directory: Path) -> Output:
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


def poisoned(directory: Path) -> Output:
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


def full_insert(directory: Path) -> Output:
    """Insert while the disk refuses writes, and again while it accepts them."""
    store, segment = new_store(directory), segment_maker(directory).make(*[0] * 3_000)
    code = None
    try:
        with file_size_limited(FILE_BYTES_MAX):
            store.insert(segment.path, token="#0", query_id="trace-drain-starved")
    except StoreTrouble as error:
        code = error.code
    before = len(store.counts([segment.location]))
    store.insert(segment.path, token="#1", query_id="trace-drain-retried")
    return {"code": code, "before": before, "rows": store.rows("SELECT count() FROM otel_traces")[0][0]}


def full_refill(directory: Path) -> Output:
    """Fill the companion table while the disk refuses writes, inspect the store, and fill it again."""
    store, segment = new_store(directory), segment_maker(directory).make(*[0] * 3_000)
    store.insert(segment.path, token="#0", query_id="trace-drain-refilled")
    store.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    code = None
    try:
        with file_size_limited(REFILLED_FILE_BYTES_MAX):
            store.refill_companion(segment.location, list(segment.days))
    except StoreTrouble as error:
        code = error.code
    store.inspect()
    store.refill_companion(segment.location, list(segment.days))
    return {
        "code": code,
        "traces": store.rows("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts")[0][0],
    }


def full_merge(directory: Path) -> Output:
    """Merge while the disk refuses writes; then open the engine again as the next process does."""
    store, maker = new_store(directory), segment_maker(directory)
    for number in range(2):
        store.insert(maker.make(*[0] * 2_000).path, token=f"#{number}", query_id="trace-drain-merged")
    with file_size_limited(MERGED_FILE_BYTES_MAX):
        store.command("OPTIMIZE TABLE otel_traces FINAL")
    message = ""
    try:
        store.inspect()
    except OperatorError as error:
        message = str(error)
    store.close()
    reopened = open_store(directory)
    count = reopened.rows("SELECT uniqExact(SpanId, SegmentSeq) FROM otel_traces")[0][0]
    reopened.inspect()
    return {"error": message, "rows": count}


class Clustered(EmbeddedStore):
    """Embedded store with a cluster on a closed port: nothing may be sent there."""

    def _connect(self, database: str | None) -> Client:
        config = self._path.with_name("config.xml")
        config.write_text(CLUSTER)
        options = {"config-file": str(config)}
        return clickhouse_connect.get_client(
            interface="chdb", path=str(self._path), database=database, chdb_options=options
        )


def distributed(directory: Path) -> Output:
    """Return the error code of the refusal without and with a constraint on the underlying table."""
    store = Clustered(directory / "store", database="otel", memory_bytes_max=2 << 30, disk_free_min=lambda: 0)
    schema.apply(store, schema_sources(), 30)
    store.command("RENAME TABLE otel_traces TO otel_traces_local")
    store.command(
        "CREATE TABLE otel_traces AS otel_traces_local "
        "ENGINE = Distributed(local, currentDatabase(), otel_traces_local, cityHash64(TraceId))"
    )
    segment = segment_maker(directory).make(0, 0)
    before = store.refusal_of(segment.path)
    store.command("ALTER TABLE otel_traces_local ADD CONSTRAINT no_shop CHECK ServiceName != 'shop'")
    refusal = store.refusal_of(segment.path)
    store.close()
    return {"before": before, "code": refusal.code if refusal else None}


COMMANDS: tuple[Callable[..., Output], ...] = (
    create,
    insert,
    recover,
    poisoned,
    full_insert,
    full_refill,
    full_merge,
    distributed,
)

if __name__ == "__main__":
    command = next(command for command in COMMANDS if command.__name__ == sys.argv[2])
    print(json.dumps(command(Path(sys.argv[1]), *sys.argv[3:])))  # noqa: T201 - the parent process reads it
