"""Fixtures of the writer's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.writer.reading import Reading
from tests.support.writer_harness import WriterHarness


@pytest.fixture
def harness(tmp_path: Path) -> WriterHarness:
    return WriterHarness(tmp_path)


@pytest.fixture
def keep_records_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not merge records, so that a segment can lose one of several records."""
    monkeypatch.setattr(Reading, "has_small_blocks", False)
