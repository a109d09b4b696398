"""Tests of the age at which a segment is sealed."""

import pytest

from receiver.journal.appender import Appender
from receiver.settings import MIB
from tests.support.journal import ROOT, Clock, append, appender, files_of, limits, maintain, store_oldest
from tests.support.memory_disk import MemoryDisk


def test_idle_segment_is_sealed_by_age() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    clock.now_s += 0.999
    maintain(journal)
    before = files_of(files, journal)

    clock.now_s += 0.001
    maintain(journal)

    assert (before, files_of(files, journal)) == (["0000000000.open"], ["0000000000.native.lz4"])


def test_segment_is_sealed_by_age_only_after_its_predecessor_is_stored() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
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


def test_age_of_the_open_segment_is_reported_until_it_is_sealed() -> None:
    clock = Clock()
    journal = appender(MemoryDisk(), clock=clock)
    ages_s = [journal.open_age_s]
    append(journal, "a")
    clock.now_s += 0.5
    ages_s.append(journal.open_age_s)

    journal.seal()

    assert [*ages_s, journal.open_age_s] == [0.0, 0.5, 0.0]


def growing_appender(files: MemoryDisk, clock: Clock, *, growth_ms_max: int = 4_000) -> Appender:
    """Start a journal that seals a segment of 100 rows, or of a third of a MiB, at an age of 4 s."""
    setting_keys = limits(segment_rows_max=300, segment_bytes_max=MIB, segment_growth_ms_max=growth_ms_max)
    return Appender(ROOT, setting_keys, now=clock, files=files)


@pytest.mark.parametrize(
    ("rows", "padding_bytes", "age_s"),
    [
        pytest.param(24, 0, 1.0, id="slow"),
        pytest.param(50, 0, 2.0, id="a burst"),
        pytest.param(100, 0, 4.0, id="fast by rows"),
        pytest.param(299, 0, 4.0, id="nearly full"),
        pytest.param(1, MIB // 3, 4.0, id="fast by bytes"),
    ],
)
def test_segment_is_sealed_later_the_fuller_it_is(rows: int, padding_bytes: int, age_s: float) -> None:
    files, clock = MemoryDisk(), Clock()
    journal = growing_appender(files, clock)
    append(journal, "a", rows=rows, padding_bytes=padding_bytes)
    clock.now_s += age_s - 0.001
    maintain(journal)
    before = files_of(files, journal)

    clock.now_s += 0.001
    maintain(journal)

    assert (before, files_of(files, journal)) == (["0000000000.open"], ["0000000000.native.lz4"])


def test_growth_age_below_the_normal_age_has_no_effect() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = growing_appender(files, clock, growth_ms_max=0)
    append(journal, "a", rows=299)
    clock.now_s += 0.999
    maintain(journal)
    before = files_of(files, journal)

    clock.now_s += 0.001
    maintain(journal)

    assert (before, files_of(files, journal)) == (["0000000000.open"], ["0000000000.native.lz4"])


def test_segment_for_which_a_sender_waits_does_not_grow_longer() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = growing_appender(files, clock)
    append(journal, "a", rows=200)
    clock.now_s += 1
    maintain(journal)
    before = files_of(files, journal)

    append(journal, "b", is_awaited=True)
    maintain(journal)

    assert (before, files_of(files, journal)) == (["0000000000.open"], ["0000000000.native.lz4"])


def test_segment_after_an_awaited_segment_grows_again() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = growing_appender(files, clock)
    append(journal, "a", is_awaited=True)
    clock.now_s += 1
    maintain(journal)
    store_oldest(files)
    append(journal, "b", rows=200)

    clock.now_s += 3
    maintain(journal)

    assert files_of(files, journal) == ["0000000001.open"]
