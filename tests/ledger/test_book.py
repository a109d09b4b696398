"""Ledger in memory: contributions of segments, repeated entries, and merging without loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.durable.append_log import NO_EXTENT
from receiver.journal.frame import Answered, Tally
from receiver.ledger import log_codec
from receiver.ledger.book import EPOCHS_MAX, Book
from receiver.ledger.line_sums import HOUR_NS, OTHER, Counts, lines_of, received_of, replayed
from receiver.ledger.log_codec import Begun, Entry, Key
from receiver.model import Heading, SegmentId
from receiver.redelivery.decisions import DUPLICATE, EXEMPT, KEPT
from receiver.settings import Ledger as Limits
from tests.ledger.on_disk import HOUR, total

FIRST, SECOND = SegmentId(7, 1), SegmentId(7, 2)


def delivery(*tallies: Tally, drain: str = "d", hour: int = HOUR) -> Answered:
    rows = sum(tally.stored for tally in tallies)
    return Answered(drain, bytes(16), hour * HOUR_NS + 1, rows, tallies)


def line(project: str = "p", hour: int = HOUR, drain: str = "d") -> dict[Heading, Counts]:
    return {Heading(drain, project, hour): Counts(received=3, stored=2, rejected=1)}


def segment_entry(segment: SegmentId, lines: dict[Heading, Counts], part: str = "") -> Entry:
    return log_codec.segment_entry(Key(segment, part), lines)


def book_of(*entries: Entry, limits: Limits | None = None) -> Book:
    book = Book(limits or Limits())
    for entry in entries:
        book.apply(entry)
    return book


def test_each_project_of_a_delivery_has_a_line_in_the_hour_of_receipt() -> None:
    first = delivery(Tally("p", 6, 3, 2, 1), Tally("q", 1, 1, 0, 0))
    second = delivery(Tally("p", 4, 0, 4, 0), hour=HOUR + 1)

    lines = lines_of([first, second], bytes([KEPT, EXEMPT]))

    assert lines == {
        Heading("d", "p", HOUR): Counts(received=6, stored=3, sampled_out=2, rejected=1),
        Heading("d", "q", HOUR): Counts(received=1, stored=1),
        Heading("d", "p", HOUR + 1): Counts(received=4, sampled_out=4),
    }
    assert received_of([first, second]) == {heading: counts.received for heading, counts in lines.items()}


def test_all_spans_of_a_duplicate_are_counted_for_any_outcome_of_the_first_delivery() -> None:
    lines = lines_of([delivery(Tally("p", 6, 3, 2, 1))], bytes([DUPLICATE]))

    assert lines == {Heading("d", "p", HOUR): Counts(received=6, duplicate=6)}


@pytest.mark.parametrize(
    ("stored", "rest", "expected"),
    [
        ({}, "dead", Counts(6, 0, 2, 1, 0, 3)),
        ({Heading("d", "p", HOUR): 2}, "dead", Counts(6, 2, 2, 1, 0, 1)),
        ({Heading("d", "p", HOUR): 2}, "duplicate", Counts(6, 2, 2, 1, 1, 0)),
        ({Heading("d", "p", HOUR): 9}, "dead", Counts(6, 3, 2, 1)),
    ],
)
def test_rows_missing_in_the_store_get_the_given_outcome(
    stored: dict[Heading, int], rest: str, expected: Counts
) -> None:
    deliveries = [delivery(Tally("p", 6, 3, 2, 1))]

    lines = lines_of(deliveries, bytes([KEPT]), stored=stored, rest="dead" if rest == "dead" else "duplicate")

    assert lines == {Heading("d", "p", HOUR): expected}
    assert expected.unaccounted == 0


def test_last_entry_of_a_segment_counts() -> None:
    dead = {Heading("d", "p", HOUR): Counts(received=3, dead=3)}

    book = book_of(segment_entry(FIRST, dead), segment_entry(SECOND, line()), segment_entry(FIRST, line("q")))

    assert total(book.lines) == Counts(received=6, stored=4, rejected=2)


def test_replayed_dead_letters_are_not_dead_and_not_received_again() -> None:
    dead = {Heading("d", "p", HOUR): Counts(received=9, dead=9)}
    again = replayed(
        [delivery(Tally("p", 4, 3, 1, 0)), delivery(Tally("p", 2, 2, 0, 0))],
        bytes([DUPLICATE, KEPT]),
        {Heading("d", "p", HOUR): 2},
    )

    book = book_of(segment_entry(FIRST, dead), segment_entry(SECOND, again), segment_entry(SECOND, again))

    assert total(book.lines) == Counts(received=9, stored=2, duplicate=3, dead=4)


def test_epoch_of_parts_is_recorded_with_their_segment() -> None:
    book = book_of(log_codec.segment_entry(Key(FIRST), line(), parts_epoch=99))

    assert book.epochs == {7: HOUR, 99: HOUR}


def test_projects_beyond_the_hourly_limit_are_merged_by_drain() -> None:
    limits = Limits(projects_max=2)

    book = book_of(
        *(segment_entry(SegmentId(7, seq), line(f"p{seq % 5}", HOUR + seq % 2)) for seq in range(20)),
        limits=limits,
    )

    named = [heading for heading in book.lines if heading.project != OTHER]
    assert len(named) == 4
    assert len(book.lines) == 6
    assert total(book.lines) == Counts(received=60, stored=40, rejected=20)


def test_hours_beyond_the_limit_are_merged_independently_of_the_clock() -> None:
    limits = Limits(hours_max=3)
    hours = [HOUR, HOUR + 1, HOUR + 9_000, HOUR + 2, HOUR + 3]

    book = book_of(
        *(segment_entry(SegmentId(7, seq), line(hour=hour)) for seq, hour in enumerate(hours)), limits=limits
    )

    assert {heading.hour for heading in book.lines} == {0, HOUR + 2, HOUR + 3, HOUR + 9_000}
    assert book.lines[Heading("d", OTHER, 0)] == Counts(received=6, stored=4, rejected=2)
    assert book.whole_from_hour == HOUR + 2


def test_projects_of_the_oldest_hour_are_merged_first_and_a_later_entry_replaces_its_share() -> None:
    book = book_of(
        *(segment_entry(SegmentId(7, seq), line(f"p{seq % 4}", HOUR + seq // 4)) for seq in range(8)),
        limits=Limits(lines_max=6),
    )

    assert len(book.lines) == 5
    assert {heading.project for heading in book.lines if heading.hour == HOUR} == {OTHER}
    assert total(book.lines) == Counts(received=24, stored=16, rejected=8)
    book.apply(segment_entry(SegmentId(7, 0), {Heading("d", "p0", HOUR): Counts(received=5, stored=5)}))
    assert book.lines[Heading("d", OTHER, HOUR)] == Counts(received=14, stored=11, rejected=3)


def test_forgotten_epoch_makes_its_last_hour_unverifiable() -> None:
    book = book_of(
        *(segment_entry(SegmentId(epoch, 0), line(hour=HOUR + epoch)) for epoch in range(EPOCHS_MAX + 1))
    )

    assert len(book.epochs) == EPOCHS_MAX
    assert book.complete_from_hour == HOUR + 1


def by_drain(*lines: dict[Heading, Counts]) -> dict[str, Counts]:
    """Return the sum of each drain with spans."""
    totals: dict[str, Counts] = {}
    for heading, counts in (line for each in lines for line in each.items()):
        totals[heading.drain] = totals.get(heading.drain, Counts()).plus(counts)
    return {drain: counts for drain, counts in totals.items() if any(counts)}


ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["", "damage", "deletion"]),
        st.dictionaries(
            st.builds(Heading, st.sampled_from("de"), st.sampled_from("pqrst"), st.integers(HOUR, HOUR + 6)),
            st.builds(
                lambda stored, dead: Counts(stored + dead, stored, dead=dead),
                st.integers(0, 9),
                st.integers(0, 9),
            ),
            min_size=1,
            max_size=4,
        ),
    ),
    max_size=25,
)
LIMITS = st.builds(
    Limits, hours_max=st.integers(1, 8), projects_max=st.integers(1, 6), lines_max=st.integers(1, 20)
)


@given(entries=ENTRIES, limits=LIMITS, settled=st.sets(st.integers(0, 5)), at=st.integers(0, 25))
def test_sums_equal_the_last_entries_after_merging_and_rereading(
    entries: list[tuple[int, str, dict[Heading, Counts]]], limits: Limits, settled: set[int], at: int
) -> None:
    expected: dict[tuple[int, str], dict[Heading, Counts]] = {}
    gone: list[dict[Heading, Counts]] = []
    book = Book(limits)
    for number, (seq, part, lines) in enumerate(entries):
        book.apply(segment_entry(SegmentId(7, seq), lines, part))
        expected[seq, part] = lines
        if number == at:
            book.settle([Key(SegmentId(7, seq)) for seq in settled])
            gone += [expected.pop((seq, "")) for seq in settled if (seq, "") in expected]
            again = log_codec.read(log_codec.written(book.entries())[0])
            book = book_of(*(linked.entry for linked in again.entries), limits=limits)

    assert by_drain(book.lines) == by_drain(*expected.values(), *gone)
    assert len({heading.hour for heading in book.lines} - {0}) <= limits.hours_max


def test_entries_are_read_back_as_they_were_written() -> None:
    entries: list[Entry] = [
        Begun(5, 1, 2, {2**64 - 1: HOUR}, NO_EXTENT),
        *log_codec.settled(line()),
        segment_entry(FIRST, line(), "x"),
    ]

    linked_entries = log_codec.read(log_codec.written(entries)[0]).entries

    assert [linked.entry for linked in linked_entries] == entries
