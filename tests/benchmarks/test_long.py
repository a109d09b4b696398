"""Tests of the long benchmarks: slopes, thirds, the page, and the results file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.long.__main__ import has_disk
from benchmarks.long.disk import PERIOD_S, Probe, SyncLatency
from benchmarks.long.page import page
from benchmarks.long.results import About, Backlog, Growth, Process, Results, Slice
from benchmarks.long.watch import Watch, journal_bytes
from benchmarks.peers import Running, state_of
from benchmarks.processes import Cores, has_ended, kill

MIB = 1 << 20
ABOUT = About("a machine", "Receiver 1", "a command", "a compiler")


def make_slice(
    minute: int = 1, *, rss_mib: float = 50, p99_ms: float | None = 9.0, journal_mb: float = 2.0
) -> Slice:
    process = Process(rss_bytes=int(rss_mib * MIB), peak_bytes=90 * MIB, descriptors=18, threads=4)
    return Slice(
        at_s=60.0 * minute,
        idle_s=0.4,
        spans=1_000,
        spans_per_s=100_000.0 + minute,
        p50_ms=None if p99_ms is None else 3.0,
        p99_ms=p99_ms,
        disk_p50_ms=1.0,
        disk_p99_ms=None if p99_ms is None else p99_ms / 2,
        answers={"200": 10},
        journal_bytes=int(journal_mb * 1e6),
        processes=dict.fromkeys(("supervisor", "intake", "store"), process),
    )


def make_growth(slices: list[Slice], error: str = "") -> Growth:
    return Growth(about=ABOUT, rate=100_000.0, minutes=30.0, slice_s=60.0, slices=slices, error=error)


def make_backlog() -> Backlog:
    return Backlog(
        about=ABOUT,
        bytes_wanted=10e9,
        rate=20_000.0,
        slice_s=10.0,
        stages={
            "empty": [make_slice(p99_ms=p99_ms) for p99_ms in (5.0, 6.0, None, 400.0)],
            "filling": [make_slice(place, p99_ms=float(place)) for place in range(1, 31)],
            "full": [make_slice(rss_mib=60, p99_ms=7.0, journal_mb=10_000)],
            "draining": [make_slice(p99_ms=11.0)],
        },
        drain_s=20.0,
        drained_spans=4_000_000,
        orphans_s={"empty": 0.5, "full": 8.0},
        first_200_s={"empty": 0.4, "full": 0.6},
    )


def test_growth_table_shows_the_first_slice_every_fifth_and_the_last() -> None:
    lines = page(Results(growth=make_growth([make_slice(minute) for minute in range(1, 13)]))).splitlines()

    assert [line.split(" | ")[0] for line in lines if " | 50 / 50 / 50 | " in line] == [
        "| 1",
        "| 5",
        "| 10",
        "| 12",
    ]
    assert "| 5 | 100,005 | 3.0 | 9.0 | 4.5 | 2 | 50 / 50 / 50 | 18 / 18 / 18 | 4 / 4 / 4 |" in lines


def test_growth_page_shows_memory_growth_per_hour_and_latency_of_both_ends() -> None:
    slices = [make_slice(minute, rss_mib=50 + minute, p99_ms=float(minute)) for minute in range(1, 31)]

    text = page(Results(growth=make_growth(slices)))

    assert "Running at the same time: a compiler, which affects the latencies." in text
    assert "| intake | 51.0 | 80.0 | +60.0 | +60.0 |" in text
    assert "\np99, median of the slices: 5.5 ms in the first third, 25.5 ms in the last." in text
    assert "\ndisk p99, median of the slices: 2.8 ms in the first third, 12.8 ms in the last." in text


def test_growth_page_of_one_slice_without_answers_has_no_slope_and_no_latency() -> None:
    text = page(Results(growth=make_growth([make_slice(p99_ms=None)])))

    assert "| intake | 50.0 | 50.0 | - | - |" in text
    assert "\np99, median of the slices: - ms in the first third, - ms in the last." in text


def test_backlog_page_shows_empty_and_full_side_by_side() -> None:
    text = page(Results(backlog=make_backlog()))

    assert "|  | empty | full | full, restarted | drained |" in text
    assert "| journal, MB | 2 | 10,000 | - | - |" in text
    assert "| children exit after the kill, s | 0.50 | 8.00 |  |  |" in text
    assert "| then start to first 200, s | 0.40 | 0.60 |  |  |" in text
    assert "| low load, p99 ms | 6.0 | 7.0 | - | - |" in text
    assert "| low load, worst p99 ms | 400.0 | 7.0 | - | - |" in text
    assert "| disk during the load, p99 ms | 3.0 | 3.5 | - | - |" in text
    assert "| filling, p99 ms | 2.0 | 29.0 |  |  |" in text
    assert "| store, MiB (peak) | 50 (90) | 60 (90) | - | - |" in text
    assert "Empty 20.0 s after the sink resumed: 200,000 spans a second." in text


def test_filling_table_is_short_and_includes_the_last_slice() -> None:
    text = page(Results(backlog=make_backlog())).partition("Filling, closed loop:")[2]
    lines = text.partition("\nEmpty ")[0].strip().splitlines()[2:]

    assert len(lines) <= 12
    assert lines[-1].startswith("| 1,800 | 100,030 |")


@pytest.mark.parametrize(
    "results",
    [
        pytest.param(Results(growth=make_growth([], "the store (process 7) has exited")), id="growth"),
        pytest.param(
            Results(
                backlog=Backlog(
                    about=ABOUT,
                    bytes_wanted=1e9,
                    rate=1.0,
                    slice_s=1.0,
                    error="the store (process 7) has exited",
                )
            ),
            id="backlog",
        ),
    ],
)
def test_part_that_ended_early_shows_the_error(results: Results) -> None:
    assert "**Ended early: the store (process 7) has exited.**" in page(results)


def test_writing_the_results_of_one_part_preserves_the_other_part(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    Results(growth=make_growth([make_slice()])).write(path)

    reread = Results.read(path)
    reread.backlog = make_backlog()
    reread.write(path)

    assert Results.read(path) == Results(growth=make_growth([make_slice()]), backlog=make_backlog())
    assert Results.read(tmp_path / "none.json") == Results()


def test_state_file_of_a_killed_receiver_is_refused(tmp_path: Path) -> None:
    (tmp_path / "receiver.json").write_text(json.dumps({"pids": {"supervisor": 7}}))

    assert state_of(tmp_path, 7) == {"pids": {"supervisor": 7}}
    with pytest.raises(ValueError, match="written by process 7; expected 8"):
        state_of(tmp_path, 8)


def test_journal_size_is_the_sum_of_its_files(tmp_path: Path) -> None:
    start = tmp_path / "journal" / "0000000000000001"
    start.mkdir(parents=True)
    (start / "0000000001.native.lz4").write_bytes(bytes(30))
    (start / "0000000002.open").write_bytes(bytes(12))
    (tmp_path / "ledger").write_bytes(bytes(100))

    assert journal_bytes(tmp_path) == 42
    assert journal_bytes(tmp_path / "none") == 0


def test_kill_returns_after_the_child_processes_have_exited(tmp_path: Path) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[write])
    child = subprocess.Popen(command, stdin=read)
    os.close(write)
    os.close(read)
    running = Running("", {supervisor.pid: "supervisor", child.pid: "intake"})
    try:
        Watch(running, tmp_path, Cores("0", "0")).kill()

        assert has_ended(supervisor.pid)
        assert has_ended(child.pid)
    finally:
        for process in (supervisor, child):
            kill(process.pid)
            process.wait()
        if supervisor.stdin:
            supervisor.stdin.close()


def test_backlog_is_skipped_if_the_disk_is_too_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert has_disk(tmp_path, 1.0)
    assert not has_disk(tmp_path, 1e18)
    assert "backlog skipped" in capsys.readouterr().err


def test_probe_measures_disk_latency_and_removes_its_file(tmp_path: Path) -> None:
    probe = Probe(tmp_path)
    assert probe.latency() == SyncLatency()

    with probe.running():
        while probe.latency().p99_ms is None:
            time.sleep(PERIOD_S)

    p50_ms, p99_ms = probe.latency()
    assert p50_ms is not None
    assert p99_ms is not None
    assert 0 < p50_ms <= p99_ms
    assert list(tmp_path.iterdir()) == []
