"""The size of the backlog is computed once per round, however many segments it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.writer.progress import WaitingUnits
from tests.support.fake_clickhouse import TODAY, FakeFile, MemoryStore, segment_of
from tests.writer.test_writer import WriterHarness


@pytest.fixture
def harness(tmp_path: Path) -> WriterHarness:
    return WriterHarness(tmp_path, MemoryStore())


class SizeCountingFile(FakeFile):
    """A segment that counts the reads of its size."""

    size_reads = 0

    @property
    def bytes(self) -> int:
        type(self).size_reads += 1
        return super().bytes


def test_backlog_size_is_computed_once_per_round(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[int, int]] = []
    report = WaitingUnits.report

    def report_and_record(waiting: WaitingUnits, now_s: float) -> None:
        report(waiting, now_s)
        reported.append((harness.progress.backlog_segments, harness.progress.backlog_bytes))

    monkeypatch.setattr(WaitingUnits, "report", report_and_record)
    for seq in range(1, 31):
        file = harness.file(segment_of([TODAY]), seq=seq)
        harness.files[seq - 1] = SizeCountingFile(file.id, file.path)
    size = FakeFile.bytes.fget(harness.files[0])  # type: ignore[attr-defined]

    harness.writer.drain()

    assert reported == [(left, left * size) for left in range(30, -1, -1)]
    assert SizeCountingFile.size_reads <= 2 * 30
