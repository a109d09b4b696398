"""Tests of the age at which a segment is sealed."""

import pytest

from receiver.journal.appender import Appender
from receiver.settings import MIB
from tests.support.cases import each_case
from tests.support.clock import Clock
from tests.support.journal import ROOT, append, files_of, limits, maintain, store_oldest
from tests.support.memory_disk import MemoryDisk


def growing_appender(files: MemoryDisk, clock: Clock, *, growth_ms_max: int = 4_000) -> Appender:
    """Start a journal that seals a segment of 100 rows, or of a third of a MiB, at an age of 4 s."""
    sizes = limits(segment_rows_max=300, segment_bytes_max=MIB, segment_growth_ms_max=growth_ms_max)
    return Appender(ROOT, sizes, now=clock, files=files)


@each_case(
    ("age_s", "rows", "padding_bytes", "growth_ms_max"),
    [
        pytest.param(1.0, 1, 0, 4_000, id="idle"),
        pytest.param(1.0, 24, 0, 4_000, id="slow"),
        pytest.param(2.0, 50, 0, 4_000, id="a burst"),
        pytest.param(4.0, 100, 0, 4_000, id="fast by rows"),
        pytest.param(4.0, 299, 0, 4_000, id="nearly full"),
        pytest.param(4.0, 1, MIB // 3, 4_000, id="fast by bytes"),
        pytest.param(1.0, 299, 0, 0, id="growth age below the normal age"),
    ],
)
def test_segment_is_sealed_later_the_fuller_it_is(
    age_s: float, rows: int, padding_bytes: int, growth_ms_max: int
) -> None:
    files, clock = MemoryDisk(), Clock()
    journal = growing_appender(files, clock, growth_ms_max=growth_ms_max)
    append(journal, "a", rows=rows, padding_bytes=padding_bytes)
    clock.now_s += age_s - 0.001
    maintain(journal)
    before = files_of(files, journal)

    clock.now_s += 0.001
    maintain(journal)

    assert (before, files_of(files, journal)) == (["0000000000.open"], ["0000000000.native.lz4"])


def test_segment_is_sealed_by_age_only_after_its_predecessor_is_stored(
    files: MemoryDisk, clock: Clock, journal: Appender
) -> None:
    append(journal, "a")
    journal.seal()
    append(journal, "b")
    clock.now_s += 60
    maintain(journal)
    before = files_of(files, journal)

    store_oldest(files)
    clock.now_s += 0.1
    maintain(journal)

    assert before == ["0000000000.native.lz4", "0000000001.open"]
    assert files_of(files, journal) == ["0000000001.native.lz4"]


def test_age_of_the_open_segment_is_reported_until_it_is_sealed(clock: Clock, journal: Appender) -> None:
    ages_s = [journal.open_age_s]
    append(journal, "a")
    clock.now_s += 0.5
    ages_s.append(journal.open_age_s)

    journal.seal()

    assert [*ages_s, journal.open_age_s] == [0.0, 0.5, 0.0]


def test_segment_for_which_a_sender_waits_does_not_grow_longer_and_the_next_grows_again(
    files: MemoryDisk, clock: Clock
) -> None:
    journal = growing_appender(files, clock)
    append(journal, "a", rows=200)
    clock.now_s += 1
    maintain(journal)
    before = files_of(files, journal)
    append(journal, "b", is_awaited=True)
    maintain(journal)
    awaited = files_of(files, journal)
    store_oldest(files)
    append(journal, "c", rows=200)

    clock.now_s += 3
    maintain(journal)

    assert (before, awaited) == (["0000000000.open"], ["0000000000.native.lz4"])
    assert files_of(files, journal) == ["0000000001.open"]
