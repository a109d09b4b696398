"""A cluster whose shards are engines in their own processes, which may be killed, hang or refuse an INSERT.

The engines do not know each other, so this module does what the servers of a cluster do: an INSERT is divided
by shard and sent to all shards at once; other statements are sent to every engine. A shard has one replica.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random, uniform
from typing import Any

from receiver import transcode
from receiver.config.addresses import parse_store_url
from receiver.engine import schema
from receiver.engine.cluster_store import Answers, ClusterStore
from receiver.engine.sql_text import Sql, compose, identifier
from receiver.engine.store import TABLE, Parameters, RowLocation
from receiver.errors import StoreTrouble
from receiver.journal.segment_core import BLOCK_ROWS_MAX
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources
from tests.support.server_process import clickhouse_server

DATABASE = "otel"
INSERT_TIMEOUT_S = 1
LATE_S = 1.2
"""Longer than the timeout: the INSERT is applied after its connection was closed."""
KILLED_AFTER_S_MAX = 0.03
KILLED_BEFORE_COUNT = 0.1
"""Probability that an engine is killed before rows are counted."""
SERVER_FAULTS: Mapping[str, Mapping[str, object]] = {
    "error": {"code": 252},
    "reset": {},
    "answer_lost": {},
    "hang": {},
    "slow": {"seconds": LATE_S},
}
"""Faults of `tests.support.clickhouse_server`, and their details."""
FAULTS = (*SERVER_FAULTS, "away", "killed", "stopped")
"""Besides: the process is killed before an INSERT, or while it inserts, or does not run for `LATE_S`."""


class Shard:
    """An engine in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = ExitStack()
        self.is_alive = False
        self.start()
        schema.apply(self.store, schema_sources(), 30)

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.is_alive:
            return
        self._server = self._process.enter_context(clickhouse_server(self._directory))
        self.store = engines.connected(self._server.url, database=DATABASE, insert_timeout_s=INSERT_TIMEOUT_S)
        self.is_alive = True

    def insert(self, rows: Path, token: str, query_id: str, fault: str) -> None:
        """Insert a file. `fault`: of `FAULTS`, or empty."""
        killer = threading.Timer(uniform(0, KILLED_AFTER_S_MAX), self._signal, [signal.SIGKILL])
        if fault in SERVER_FAULTS:
            self._server.inject_fault(fault, **SERVER_FAULTS[fault])
        elif fault == "away":
            self.kill()
        elif fault == "killed":
            killer.start()
        elif fault:
            self._signal(signal.SIGSTOP)
            threading.Timer(LATE_S, self._signal, [signal.SIGCONT]).start()
        try:
            self.store.insert(rows, token=token, query_id=query_id)
        finally:
            if fault == "killed":
                killer.join()
                self.close()

    def kill(self) -> None:
        """Kill the process, unless it is dead."""
        if self.is_alive:
            self._signal(signal.SIGKILL)
            self.close()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._server.pid, number)

    def close(self) -> None:
        """Wait for the end of the process, which ends by itself now unless it was killed."""
        self.is_alive = False
        self.store.close()
        self._process.close()


class EngineCluster(ClusterStore):
    """`ClusterStore` whose statements are sent to each engine."""

    def __init__(self, directory: Path, random: Random, shards: int) -> None:
        url = parse_store_url(f"http://127.0.0.1:1/{DATABASE}")
        assert url is not None
        super().__init__(url, database="", password="", insert_timeout_s=1, receiver="test", cluster="prod")
        self._directory = directory
        self.random = random
        self.engines = [Shard(directory / f"shard{number}") for number in range(1, shards + 1)]
        self.is_faulty = False
        self.faults: list[str] = []
        """Faults of INSERTs so far, of the kinds in turn."""

    def _shard_of_node(self) -> list[int]:
        return list(range(1, len(self.engines) + 1))

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """See `Store`. Each shard succeeds or fails for itself, as behind a `Distributed` table."""
        pieces = list(self._divided(segment))
        with ThreadPoolExecutor(len(pieces)) as pool:
            sent = [
                pool.submit(shard.insert, rows, token, query_id, self._fault(shard)) for shard, rows in pieces
            ]
        errors = [error for shard in sent if (error := shard.exception())]
        if errors:
            raise next((error for error in errors if not isinstance(error, StoreTrouble)), errors[0])
        return sum(end - first for first, end, _, _ in transcode.day_runs(segment.read_bytes(), 0))

    def _divided(self, segment: Path) -> Iterator[tuple[Shard, Path]]:
        """Write the rows of each shard that has any into a file."""
        content = segment.read_bytes()
        runs = transcode.day_runs(content, len(self.engines))
        for number, engine in enumerate(self.engines, start=1):
            if own := [(first, end) for first, end, _, shard in runs if shard == number]:
                path = self._directory / f"shard{number}.native.lz4"
                path.write_bytes(transcode.rewrite(content, own, "lz4", BLOCK_ROWS_MAX))
                yield engine, path

    def _fault(self, shard: Shard) -> str:
        if not shard.is_alive:
            return "away"
        if not self.is_faulty or self.random.random() < 0.5:
            return ""
        self.faults.append(FAULTS[len(self.faults) % len(FAULTS)])
        return self.faults[-1]

    def restart(self, probability: float = 1.0) -> None:
        """Start each killed engine with a probability."""
        for engine in self.engines:
            if self.random.random() < probability:
                engine.start()

    def _of_replicas(self, statement: Callable[[Sql], Sql], column: Sql, parameters: Parameters) -> Answers:
        asked = compose(
            "SELECT {column} FROM ({of_replica})", column=column, of_replica=statement(identifier(TABLE))
        )
        if self.is_faulty and self.random.random() < KILLED_BEFORE_COUNT:
            self.random.choice(self.engines).kill()
        answers: Answers = {}
        for number, engine in enumerate(self.engines, start=1):
            with suppress(StoreTrouble):
                answers[number] = list(engine.store.rows(asked, parameters)[0][0])
        return answers

    def running(self, prefix: str) -> list[str]:
        """See `Store`. An engine that does not answer makes the statement fail."""
        return [query_id for engine in self.engines for query_id in engine.store.running(prefix)]

    def kill(self, prefix: str) -> None:
        for engine in self.engines:
            engine.store.kill(prefix)

    def probe(self) -> None:
        for engine in self.engines:
            engine.store.probe()

    def refill_companion(self, location: RowLocation, days: Sequence[str]) -> None:
        for engine in self.engines:
            engine.store.refill_companion(location, sorted({day.rpartition("/")[2] for day in days}))

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """See `Store`. The answers of all engines together."""
        return [row for engine in self.engines for row in engine.store.rows(statement, parameters)]

    def close(self) -> None:
        super().close()
        for engine in self.engines:
            if engine.is_alive:
                engine.close()
