"""Rewrites of a segment before its first INSERT: small blocks are merged, damage is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_clickhouse import TODAY, MemoryStore, segment_of
from tests.writer.test_writer import ID, TWO_DAYS, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, MemoryStore())


def test_small_blocks_are_merged_only_before_the_first_insert(bench: Bench) -> None:
    file = bench.file(segment_of(*[[TODAY] * 10] * 30))
    bench.store.script = ["error:210"]

    bench.carry()

    assert file.replaced == 1
    assert bench.progress.rows == 300


def test_large_blocks_are_not_rewritten(bench: Bench) -> None:
    file = bench.file(segment_of([TODAY] * 200, [TODAY] * 200))

    bench.carry()

    assert file.replaced == 0


def test_damaged_record_is_left_out_and_kept_as_a_dead_letter(bench: Bench) -> None:
    content = TWO_DAYS[:-1] + b', "rot"]'
    bench.file(content)

    bench.carry()

    assert sum(bench.stored.values()) == 500
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("damaged", None)]
    assert (bench.directory / "dead" / f"{ID}.damaged.native.lz4").read_bytes() == content


def test_small_blocks_that_cannot_be_merged_are_inserted_unchanged(bench: Bench) -> None:
    file = bench.file(segment_of([TODAY] * 10, [TODAY] * 10))
    bench.core.cannot_rewrite = "block is strange"

    bench.carry()

    assert file.replaced == 0
    assert sum(bench.stored.values()) == 20


def test_damage_that_cannot_be_removed_makes_the_segment_a_dead_letter(bench: Bench) -> None:
    content = TWO_DAYS[:-1] + b', "rot"]'
    bench.file(content)
    bench.core.cannot_rewrite = "no whole record"

    bench.carry()

    assert (bench.directory / "dead" / f"{ID}.damaged.native.lz4").read_bytes() == content
    assert bench.store.tokens == []
    assert not bench.files[0].path.exists()
