"""A writer that hangs in the store is noticed; one that waits, or has not begun, is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.store_process.watchdog import Watchdog, WriterHangs
from tests.support.fake_clickhouse import MemoryStore, Rows
from tests.writer.test_writer import TWO_DAYS, Bench


@pytest.mark.parametrize(
    ("beats", "now_s"),
    [
        pytest.param([], 1_000.0, id="not begun yet"),
        pytest.param([0.0, 900.0], 1_000.0, id="came back"),
    ],
)
def test_a_writer_that_comes_back_is_left_alone(beats: list[float], now_s: float) -> None:
    clock = iter([*beats, now_s])
    pulse = Watchdog(lambda: next(clock), silence_s_max=420)

    for _ in beats:
        pulse.beat()

    pulse.check()


def test_a_writer_that_is_done_is_not_expected_back() -> None:
    clock = iter([0.0])
    pulse = Watchdog(lambda: next(clock), silence_s_max=420)

    pulse.beat()
    pulse.stop()

    pulse.check()


def test_a_writer_that_hangs_in_an_insert_is_noticed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, MemoryStore())
    bench.file(TWO_DAYS)
    seconds = [0.0]
    pulse = Watchdog(lambda: seconds[0], silence_s_max=420)
    bench.alive = pulse.beat
    found: list[str] = []

    def hang(path: Path) -> Rows:
        seconds[0] += 421
        with pytest.raises(WriterHangs) as hung:
            pulse.check()
        found.append(str(hung.value))
        bench.store.rows_of = whole
        return whole(path)

    whole = bench.store.rows_of
    bench.store.rows_of = hang

    bench.writer.drain()

    assert found == ["writer was silent for 421 s; expected it back from the store within 420 s"]
    pulse.check()
