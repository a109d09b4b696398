"""A ClickHouse that hangs, a journal that fills, a kill and a start in the middle of it, and the way back.

The sink is stopped (SIGSTOP), not ended: it takes connections and never answers, and the writer waits for it
with an INSERT under way. That is worse than one that refuses: nobody knows of it before a time-out.
Empty and full are measured alike: the sink hangs with an INSERT under way, and the load is low.
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
"""Of every stage under the low load: one stall of the disk is one of them, and not the median."""
EMPTY_BYTES = 16 << 20
"""Of a journal that only holds what the low load brought lately."""
DISK_SPARE_BYTES = 2 << 30
"""Beside the journal: what a slice writes beyond it, and what belongs to nobody."""
DRAIN_S_MAX = 3_600.0
POLL_S = 0.5
SETTINGS = """
[journal]
bytes_max = {bytes_max}
disk_free_min = 268435456
"""


def settings_for(bytes_wanted: float) -> str:
    """A ceiling that is never reached: what is answered is to be measured, not what is sent away."""
    return SETTINGS.format(bytes_max=int(bytes_wanted * 1.5) + DISK_SPARE_BYTES)


def disk_bytes_for(bytes_wanted: float) -> float:
    """What has to be free."""
    return bytes_wanted * 1.1 + DISK_SPARE_BYTES


@dataclass
class Trial:
    """One run through all of it."""

    peer: Peer
    environment: Environment
    cores: Cores
    backlog: Backlog
    log: Log
    _seed: int = field(default=0)

    def run(self) -> None:
        """Step by step; what was seen before something went wrong is kept."""
        try:
            self._run()
        except (MeasurementError, OSError) as error:
            self.backlog.ended = str(error)
            self.log(f"backlog ends: {error}")
        finally:
            self.environment.sink.resume()

    def _run(self) -> None:
        backlog, sink = self.backlog, self.environment.sink
        with answering(self.peer, self.environment) as (running, _):
            watch = Watch(running, self._data, self.cores)
            self._warm_up(running, sink)
            self._killed(watch, "empty")
        with self._started("empty") as watch:
            sink.resume()
            sink.wait_for(backlog.acknowledged, CATCH_UP_S)
            self._warm_up(watch.running, sink)
            self._low(watch, "empty")
            while journal_bytes(self._data) < backlog.bytes_wanted:
                self._slice(watch, "filling")
            time.sleep(SETTLED_S)
            self._low(watch, "full")
            self._killed(watch, "full")
        with self._started("full") as watch:
            self._low(watch, "restarted")
            self._drain(watch, sink)
            self._low(watch, "drained")
            sink.wait_for(backlog.acknowledged, CATCH_UP_S)
            backlog.stored = sink.rows()

    @property
    def _data(self) -> Path:
        return self.environment.directory / "data"

    def _warm_up(self, running: Running, sink: Sink) -> None:
        """Load it briefly while the sink answers, and when it does not: then an INSERT hangs."""
        self._some(running)
        sink.wait_for(self.backlog.acknowledged, CATCH_UP_S)
        sink.hang()
        self._some(running)
        time.sleep(SETTLED_S)

    def _some(self, running: Running) -> None:
        said = load(running.url, self.cores, [*BODY.options, "--requests", str(WARM_UP_REQUESTS)])
        self.backlog.acknowledged += said["spans"]

    @contextmanager
    def _started(self, name: str) -> Iterator[Watch]:
        with answering(self.peer, self.environment) as (running, first_200_s):
            self.backlog.first_200_s[name] = first_200_s
            self.log(f"backlog  {name}: start to first 200 {first_200_s:.2f} s")
            watch = Watch(running, self._data, self.cores)
            time.sleep(SETTLED_S)
            yield watch

    def _killed(self, watch: Watch, name: str) -> None:
        orphans_s = self.backlog.orphans_s[name] = watch.kill()
        self.log(f"backlog  {name}: supervisor killed, the others gone after {orphans_s:.2f} s")

    def _low(self, watch: Watch, stage: Stage) -> None:
        for _ in range(LOW_SLICES):
            self._slice(watch, stage)

    def _slice(self, watch: Watch, stage: Stage) -> None:
        self._seed += 1
        rate = [] if stage == "filling" else ["--rate", f"{self.backlog.rate:.0f}"]
        one = watch.slice([*BODY.options, *rate], self.backlog.slice_s, self._seed)
        self.backlog.stages.setdefault(stage, []).append(one)
        self.backlog.acknowledged += one.spans
        self.log(f"backlog  {stage:<9} {line_of(one)}")

    def _drain(self, watch: Watch, sink: Sink) -> None:
        """Let the sink answer again, a low load beside."""
        watch.reset_peaks()
        emptied = Emptied(self._data, sink)
        sink.resume()
        emptied.start()
        while emptied.is_alive():
            self._slice(watch, "draining")
        if emptied.after_s is None:
            raise MeasurementError(emptied.trouble or f"the journal was not empty after {DRAIN_S_MAX:g} s")
        self.backlog.drain_s, self.backlog.drained_spans = emptied.after_s, emptied.spans
        self.log(f"backlog  drained in {emptied.after_s:.1f} s, {emptied.spans:,} spans")


class Emptied(threading.Thread):
    """Sees when the journal is empty, whatever else goes on."""

    def __init__(self, data: Path, sink: Sink) -> None:
        super().__init__(name="emptied", daemon=True)
        self._data, self._sink = data, sink
        self.after_s: float | None = None
        self.spans = 0
        self.trouble = ""

    def run(self) -> None:
        """Look until it is, or for too long."""
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
            self.trouble = f"the sink does not say how many rows it has: {error}"
