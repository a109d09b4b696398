"""Backlog benchmark: the store hangs, the journal fills, the receiver is killed and restarted, then drains.

SIGSTOP stops the sink, which still accepts connections but never answers, so the writer waits in an INSERT.
That is worse than a store that refuses connections, because only a time-out detects it. Both the empty and
the full journal are measured in this state, under a low load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.long.results import Backlog, Stage
from benchmarks.long.watch import Log, Watch, journal_bytes, line_of
from benchmarks.measure import BODIES, CATCH_UP_S, WARM_UP_REQUESTS, load
from benchmarks.ours import SETTLED_S, answering
from benchmarks.peers import Environment, MeasurementError, Peer, Running
from benchmarks.processes import Cores
from benchmarks.sink import Sink

BODY = BODIES[0]
LOW_SLICES = 6
"""Slices per stage under the low load: enough that a single stall of the disk does not move the median."""
EMPTY_BYTES = 16 << 20
"""Size below which the journal counts as empty: it holds only recent deliveries of the low load."""
DISK_SPARE_BYTES = 2 << 30
"""Free disk beyond the backlog, for the last slice and for other files."""
DRAIN_S_MAX = 3_600.0
POLL_S = 0.5
SETTINGS = """
[journal]
bytes_max = {bytes_max}
disk_free_min = 268435456
"""


def settings_for(bytes_wanted: float) -> str:
    """Return settings whose journal limit is never reached, so that no request is refused."""
    return SETTINGS.format(bytes_max=int(bytes_wanted * 1.5) + DISK_SPARE_BYTES)


def disk_bytes_for(bytes_wanted: float) -> float:
    """Return the free disk space that a backlog of this size requires."""
    return bytes_wanted * 1.1 + DISK_SPARE_BYTES


@dataclass
class BacklogRun:
    """One run of the backlog benchmark."""

    peer: Peer
    environment: Environment
    cores: Cores
    backlog: Backlog
    log: Log
    _seed: int = field(default=0)

    def run(self) -> None:
        """Run all stages. If one fails, keep the results of the stages before it."""
        try:
            self._run()
        except (MeasurementError, OSError) as error:
            self.backlog.error = str(error)
            self.log(f"backlog failed: {error}")
        finally:
            self.environment.sink.resume()

    def _run(self) -> None:
        backlog, sink = self.backlog, self.environment.sink
        with answering(self.peer, self.environment) as (running, _):
            watch = Watch(running, self._data, self.cores)
            self._warm_up(running, sink)
            self._kill(watch, "empty")
        with self._started("empty") as watch:
            sink.resume()
            sink.wait_for(backlog.acknowledged, CATCH_UP_S)
            self._warm_up(watch.running, sink)
            self._low_load(watch, "empty")
            while journal_bytes(self._data) < backlog.bytes_wanted:
                self._slice(watch, "filling")
            time.sleep(SETTLED_S)
            self._low_load(watch, "full")
            self._kill(watch, "full")
        with self._started("full") as watch:
            self._low_load(watch, "restarted")
            self._drain(watch, sink)
            self._low_load(watch, "drained")
            sink.wait_for(backlog.acknowledged, CATCH_UP_S)
            backlog.stored = sink.rows()

    @property
    def _data(self) -> Path:
        return self.environment.directory / "data"

    def _warm_up(self, running: Running, sink: Sink) -> None:
        """Send requests while the sink answers and after it hangs, so that an INSERT hangs, too."""
        self._send_warm_up(running)
        sink.wait_for(self.backlog.acknowledged, CATCH_UP_S)
        sink.hang()
        self._send_warm_up(running)
        time.sleep(SETTLED_S)

    def _send_warm_up(self, running: Running) -> None:
        report = load(running.url, self.cores, [*BODY.options, "--requests", str(WARM_UP_REQUESTS)])
        self.backlog.acknowledged += report["spans"]

    @contextmanager
    def _started(self, name: str) -> Iterator[Watch]:
        with answering(self.peer, self.environment) as (running, first_200_s):
            self.backlog.first_200_s[name] = first_200_s
            self.log(f"backlog  {name}: start to first 200 {first_200_s:.2f} s")
            watch = Watch(running, self._data, self.cores)
            time.sleep(SETTLED_S)
            yield watch

    def _kill(self, watch: Watch, name: str) -> None:
        orphans_s = self.backlog.orphans_s[name] = watch.kill()
        self.log(f"backlog  {name}: supervisor killed, its children exited after {orphans_s:.2f} s")

    def _low_load(self, watch: Watch, stage: Stage) -> None:
        for _ in range(LOW_SLICES):
            self._slice(watch, stage)

    def _slice(self, watch: Watch, stage: Stage) -> None:
        self._seed += 1
        rate = [] if stage == "filling" else ["--rate", f"{self.backlog.rate:.0f}"]
        time_slice = watch.slice([*BODY.options, *rate], self.backlog.slice_s, self._seed)
        self.backlog.stages.setdefault(stage, []).append(time_slice)
        self.backlog.acknowledged += time_slice.spans
        self.log(f"backlog  {stage:<9} {line_of(time_slice)}")

    def _drain(self, watch: Watch, sink: Sink) -> None:
        """Resume the sink, and run the low load until the journal is empty."""
        watch.reset_peaks()
        empty_watch = EmptyJournalWatch(self._data, sink)
        sink.resume()
        empty_watch.start()
        while empty_watch.is_alive():
            self._slice(watch, "draining")
        if empty_watch.after_s is None:
            raise MeasurementError(empty_watch.error or f"the journal was not empty after {DRAIN_S_MAX:g} s")
        self.backlog.drain_s, self.backlog.drained_spans = empty_watch.after_s, empty_watch.spans
        self.log(f"backlog  drained in {empty_watch.after_s:.1f} s, {empty_watch.spans:,} spans")


class EmptyJournalWatch(threading.Thread):
    """Thread that records when the journal becomes empty."""

    def __init__(self, data: Path, sink: Sink) -> None:
        super().__init__(name="empty-journal-watch", daemon=True)
        self._data, self._sink = data, sink
        self.after_s: float | None = None
        self.spans = 0
        self.error = ""

    def run(self) -> None:
        """Poll until the journal is empty or the time is over."""
        began_s = time.monotonic()
        try:
            before = self._sink.rows()
            while time.monotonic() - began_s < DRAIN_S_MAX:
                if journal_bytes(self._data) < EMPTY_BYTES:
                    self.after_s = time.monotonic() - began_s
                    self.spans = self._sink.rows() - before
                    return
                time.sleep(POLL_S)
        except OSError as error:
            self.error = f"the sink did not report its row count: {error}"
