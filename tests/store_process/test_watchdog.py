"""Watchdog: reports a writer that hangs in the store, not a writer that waits or has not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.store_process.writer_thread import Watchdog, WriterHangs
from tests.support.fake_clickhouse import MemoryStore, Rows
from tests.support.writer_harness import TWO_DAYS, WriterHarness


@pytest.mark.parametrize(
    ("beats", "now_s"),
    [
        pytest.param([], 1_000.0, id="not started yet"),
        pytest.param([0.0, 900.0], 1_000.0, id="beats in time"),
    ],
)
def test_writer_that_beats_in_time_is_not_reported(beats: list[float], now_s: float) -> None:
    clock = iter([*beats, now_s])
    watchdog = Watchdog(lambda: next(clock), silence_s_max=420)

    for _ in beats:
        watchdog.beat()

    watchdog.check()


def test_writer_that_stopped_is_not_reported() -> None:
    clock = iter([0.0])
    watchdog = Watchdog(lambda: next(clock), silence_s_max=420)

    watchdog.beat()
    watchdog.stop()

    watchdog.check()


def test_writer_that_hangs_in_an_insert_is_reported(tmp_path: Path) -> None:
    harness = WriterHarness(tmp_path, MemoryStore())
    harness.file(TWO_DAYS)
    seconds = [0.0]
    watchdog = Watchdog(lambda: seconds[0], silence_s_max=420)
    harness.heartbeat = watchdog.beat
    messages: list[str] = []

    def hang(path: Path) -> Rows:
        seconds[0] += 30
        assert watchdog.trouble == ""
        seconds[0] += 1
        assert watchdog.trouble == "no answer for 31 s"
        seconds[0] += 390
        with pytest.raises(WriterHangs) as error:
            watchdog.check()
        messages.append(str(error.value))
        harness.store.rows_of = rows_of
        return rows_of(path)

    rows_of = harness.store.rows_of
    harness.store.rows_of = hang

    harness.writer.drain()

    assert messages == ["writer was silent for 421 s; expected the store to return within 420 s"]
    assert watchdog.trouble == ""
    watchdog.check()
