"""Rewrites of a segment before its first INSERT: small blocks are merged, damaged records are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_clickhouse import TODAY, MemoryStore, segment_of
from tests.writer.test_writer import ID, TWO_DAYS, WriterHarness


@pytest.fixture
def harness(tmp_path: Path) -> WriterHarness:
    return WriterHarness(tmp_path, MemoryStore())


def test_small_blocks_are_merged_only_before_the_first_insert(harness: WriterHarness) -> None:
    file = harness.file(segment_of(*[[TODAY] * 10] * 30))
    harness.store.script = ["error:210"]

    harness.drain_first_segment()

    assert file.replaced == 1
    assert harness.progress.rows == 300


def test_large_blocks_are_not_rewritten(harness: WriterHarness) -> None:
    file = harness.file(segment_of([TODAY] * 200, [TODAY] * 200))

    harness.drain_first_segment()

    assert file.replaced == 0


def test_damaged_record_is_removed_and_kept_as_a_dead_letter(harness: WriterHarness) -> None:
    content = TWO_DAYS[:-1] + b', "rot"]'
    harness.file(content)

    harness.drain_first_segment()

    assert sum(harness.stored.values()) == 500
    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("damaged", None)]
    assert (harness.directory / "dead" / f"{ID}.damaged.native.lz4").read_bytes() == content


def test_small_blocks_that_cannot_be_merged_are_inserted_unchanged(harness: WriterHarness) -> None:
    file = harness.file(segment_of([TODAY] * 10, [TODAY] * 10))
    harness.core.cannot_rewrite = "block is malformed"

    harness.drain_first_segment()

    assert file.replaced == 0
    assert sum(harness.stored.values()) == 20


def test_damage_that_cannot_be_removed_makes_the_segment_a_dead_letter(harness: WriterHarness) -> None:
    content = TWO_DAYS[:-1] + b', "rot"]'
    harness.file(content)
    harness.core.cannot_rewrite = "no whole record"

    harness.drain_first_segment()

    assert (harness.directory / "dead" / f"{ID}.damaged.native.lz4").read_bytes() == content
    assert harness.store.tokens == []
    assert not harness.files[0].path.exists()
