"""The rollups of attributes never change an answer, and spans are read only where the rollups lack it.

Each test compares answers with counts in plain Python over the spans that are stored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver.config.promoted import promoted_attributes
from receiver.console.queries.rollup.attributes import VALUE_BYTES_MAX, VALUES_MAX
from receiver.console.queries.rollup.derivation import Closing, derive
from receiver.console.queries.rollup.slots import invalidate, read_slots
from receiver.engine import schema
from receiver.engine.promoted import promoted_columns
from receiver.engine.store import Parameters, Store
from tests.support import engines
from tests.support.attribute_rollups import (
    ALL_NS,
    DAY_NS,
    ODD_KEY,
    PROMOTED,
    ROLLUPS,
    ReadTables,
    asked,
    assert_equal,
    attribute_span,
    expected,
    tables_of,
)
from tests.support.fake_clickhouse import schema_sources
from tests.support.random_filters import NOW_S
from tests.support.rollups import (
    CLOSING,
    HOUR_S,
    MIDNIGHT_S,
    derive_all,
    due_count,
    insert,
    random_spans,
    span_at,
)


@pytest.fixture(params=engines.KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    directory: Path = request.getfixturevalue("engine_dir")
    is_embedded = request.param == "embedded"
    opened = (
        engines.embedded(directory)
        if is_embedded
        else engines.over_http(request.getfixturevalue("server_url"))
    )
    with opened as store:
        schema.apply(store, schema_sources(), 30, PROMOTED)
        yield store


@engines.EACH_KIND
@pytest.mark.parametrize("seed", range(2))
def test_answers_equal_the_spans_in_any_range(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    spans = random_spans(rng)
    insert(store, spans)
    assert_equal(store, spans)
    derive_all(store)

    assert due_count(store) == 0
    assert_equal(store, spans)
    for _ in range(3):
        from_s, to_s = sorted(rng.randrange(ALL_NS[0] // 10**9, ALL_NS[1] // 10**9) for _ in range(2))
        assert_equal(store, spans, (from_s * 10**9, to_s * 10**9))


def test_closed_hours_are_answered_without_spans(store: Store) -> None:
    insert(store, random_spans(random.Random(2)))
    assert tables_of(store, None) == {"spans"}
    derive_all(store)

    for key in (None, "http.route", "k", "absent"):
        assert tables_of(store, key) == {"rollup"}, key
    # Spans have this attribute, and it is not promoted.
    assert tables_of(store, ODD_KEY) == {"rollup", "spans"}
    assert tables_of(store, "k", (DAY_NS[0] + 10**9, DAY_NS[1])) == {"rollup", "spans"}


def test_proof_is_kept_until_a_rollup_of_attributes_changes(store: Store) -> None:
    spans = random_spans(random.Random(12))
    insert(store, spans)
    derive_all(store)
    recorded = ReadTables(store)
    for key in (None, "k", "host"):
        assert asked(recorded, key, DAY_NS) == expected(spans, key, DAY_NS)
    assert recorded.proofs == 1
    lose_values(store)

    assert asked(recorded, "k", DAY_NS) == expected(spans, "k", DAY_NS)
    assert (recorded.proofs, recorded.reads_spans) == (2, True)


def test_filter_by_project_is_answered_by_the_rollup(store: Store) -> None:
    spans = random_spans(random.Random(3))
    insert(store, spans)
    derive_all(store)

    for key in (None, "http.route", "k", ODD_KEY):
        assert asked(store, key, ALL_NS, "project=prj_1") == expected(spans, key, ALL_NS, "prj_1")
        assert asked(store, key, ALL_NS, "-project=prj_2") == expected(spans, key, ALL_NS, "prj_1")
    assert tables_of(store, "k", text="project=prj_1") == {"rollup"}
    assert tables_of(store, None, text="project=prj_1 or project=prj_2") == {"rollup"}


def test_other_filters_read_the_spans(store: Store) -> None:
    spans = random_spans(random.Random(4))
    insert(store, spans)
    derive_all(store)
    of_service = [span for span in spans if span["ServiceName"] == "web"]

    for key in (None, "k"):
        assert asked(store, key, ALL_NS, "service=web") == expected(of_service, key, ALL_NS)
        assert tables_of(store, key, text="project=prj_1 service=web") == {"spans"}


def test_late_spans_are_counted_beside_the_rollup(store: Store) -> None:
    rng = random.Random(5)
    spans = random_spans(rng)
    insert(store, spans)
    derive_all(store)
    spans += (late := [span_at(rng, 1_000 + n, MIDNIGHT_S + n * 1_000, NOW_S) for n in range(10)])
    insert(store, late)

    assert_equal(store, spans)
    assert tables_of(store, "k") == {"rollup", "spans"}
    derive_all(store, Closing(NOW_S + 601, 600))
    assert_equal(store, spans)
    assert tables_of(store, "k") == {"rollup"}


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE otel_traces DELETE WHERE ServiceName = 'web' SETTINGS mutations_sync = 1",
        "DELETE FROM otel_traces WHERE ServiceName = 'web'",
    ],
)
def test_attributes_of_deleted_spans_are_not_counted(store: Store, statement: str) -> None:
    spans = random_spans(random.Random(6))
    insert(store, spans)
    derive_all(store)
    store.command(statement)
    left = [span for span in spans if span["ServiceName"] != "web"]

    assert_equal(store, left)
    derive_all(store)
    assert_equal(store, left)
    assert tables_of(store, "k") == {"rollup"}


class Killed(Exception):  # noqa: N818 - an event
    """The process was killed."""


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_at_any_statement_changes_no_answer(engine_dir: Path, *, is_after: bool) -> None:
    rng = random.Random(7)
    spans, hour = random_spans(rng), MIDNIGHT_S // HOUR_S + 3
    left = 0

    class KilledStore(ReadTables):
        """Store whose process is killed before or after a statement."""

        def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
            nonlocal left
            left -= 1
            rows = [] if left < 0 and not is_after else self._store.rows(statement, parameters)
            if left < 0:
                raise Killed
            return rows

    with engines.embedded(engine_dir) as store:
        schema.apply(store, schema_sources(), 30, PROMOTED)
        insert(store, spans)
        derive_all(store)
        for statement in range(30):
            late = [span_at(rng, 3_000 + statement, hour * HOUR_S, NOW_S - 599 + statement)]
            insert(store, late)
            spans += late
            left = statement
            try:
                derive(KilledStore(store), [hour], Closing(NOW_S + statement + 1, 600))
            except Killed:
                assert_equal(store, spans, DAY_NS)
            else:
                break

        assert 12 <= statement < 29
        assert hour in read_slots(store, hour, hour + 1)
        assert_equal(store, spans, DAY_NS)


def lose_rows(store: Store) -> None:
    for table in ROLLUPS:
        store.command(
            f"ALTER TABLE {table} DELETE WHERE Spans > 1 AND Source != '' SETTINGS mutations_sync = 1"
        )


def repeat_rows(store: Store) -> None:
    for table in ROLLUPS:
        store.command(f"SYSTEM STOP MERGES {table}")
        store.command(f"INSERT INTO {table} SELECT * FROM {table} WHERE Source != ''")  # noqa: S608 - ours


def lose_values(store: Store) -> None:
    store.command("TRUNCATE TABLE otel_attribute_values")


@pytest.mark.parametrize(
    "damage", [lose_rows, repeat_rows, lose_values, lambda store: invalidate(store, None)]
)
def test_damaged_rollup_is_not_read_and_derived_again(store: Store, damage: Callable[[Store], None]) -> None:
    spans = random_spans(random.Random(8))
    insert(store, spans)
    derive_all(store)
    damage(store)

    assert_equal(store, spans)
    assert due_count(store) >= 24
    derive_all(store)
    assert_equal(store, spans)
    for key in (None, "k", "http.route"):
        assert tables_of(store, key) == {"rollup"}


@engines.EACH_KIND
def test_dropped_tables_change_no_answer(store: Store) -> None:
    spans = random_spans(random.Random(9))
    insert(store, spans)
    derive_all(store)
    for table in ROLLUPS:
        store.command(f"DROP TABLE {table} SYNC")

    assert_equal(store, spans)


def test_attributes_that_are_promoted_later_are_counted_by_their_columns(store: Store) -> None:
    keys = ["host", "app"] * 12
    spans = [attribute_span(hour, hour, "a", SpanAttributes={key: key}) for hour, key in enumerate(keys)]
    insert(store, spans)
    derive_all(store)
    # Keeps a proof with the promoted attributes of now.
    assert tables_of(store, None) == {"rollup"}
    # In both scopes, because the columns that exist would be computed again for one, which is a mutation.
    schema.apply(store, schema_sources(), 30, promoted_attributes(("span:host app", "resource:host")))
    counts = {("span", "host", "host"): 12, ("span", "host", "app"): 12, ("resource", "host", "a"): 24}

    assert asked(store, "host", DAY_NS) == counts
    assert due_count(store) >= 24
    derive_all(store)
    assert asked(store, "host", DAY_NS) == counts
    assert tables_of(store, "host") == {"rollup"}


@pytest.mark.parametrize(
    ("values", "is_listed"),
    [
        ([str(number) for number in range(VALUES_MAX)], True),
        ([str(number) for number in range(VALUES_MAX + 1)], False),
        (["x" * VALUE_BYTES_MAX, ""], True),
        (["x" * (VALUE_BYTES_MAX + 1), ""], False),
        (["é" * (VALUE_BYTES_MAX // 2 + 1)], False),
    ],
)
def test_only_few_and_short_values_are_listed(store: Store, values: list[str], *, is_listed: bool) -> None:
    many = [attribute_span(5, number, value, ProjectId="prj_1") for number, value in enumerate(values)]
    few = [attribute_span(hour, hour, "a", ProjectId="prj_2") for hour in range(24)]
    spans = [*many, *few]
    insert(store, spans)
    derive_all(store)

    for key in ("http.route", "host"):
        assert asked(store, key, DAY_NS) == expected(spans, key, DAY_NS)
        assert tables_of(store, key) == ({"rollup"} if is_listed else {"rollup", "spans"})
        # Many values of another project are no reason to read spans.
        assert tables_of(store, key, text="project=prj_2") == {"rollup"}
    rows = store.rows("SELECT max(length(Value)), max(IsOmitted) FROM otel_attribute_values")
    assert rows == [(max(len(value.encode()) for value in values) if is_listed else 1, not is_listed)]


@engines.EACH_KIND
def test_hostile_keys_and_values_are_counted(store: Store) -> None:
    entries = promoted_columns(store).entries
    texts = ["", "' OR 1=1 --", "{key:String}", "a\x00b", entries, "k" * 65_536, "[items]", "\\"]
    spans = [
        attribute_span(
            hour, hour, text, SpanAttributes={text: text}, ResourceAttributes={text: text, "Span_k": text}
        )
        for hour, text in enumerate(texts)
    ]
    insert(store, spans)
    derive_all(store)

    for key in (None, *texts, "Span_k"):
        assert asked(store, key, DAY_NS) == expected(spans, key, DAY_NS)
    assert tables_of(store, None) == {"rollup"}


@pytest.mark.parametrize("changes", [1, 2])
def test_derivation_during_a_question_is_noticed(store: Store, changes: int) -> None:
    spans = random_spans(random.Random(11))
    insert(store, spans)
    derive_all(store)

    class Interleaved(ReadTables):
        """Store in which an hour is derived again before the answer is read."""

        statements = 0

        def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
            self.statements += 1
            if self.statements <= changes:
                derive(self._store, [MIDNIGHT_S // HOUR_S], CLOSING)
            return super().lines(statement, parameters)

    for key in (None, "k"):
        interleaved = Interleaved(store)
        assert asked(interleaved, key, DAY_NS) == expected(spans, key, DAY_NS)
        # A rollup is read twice; then the spans are.
        assert (interleaved.statements, interleaved.reads_spans) == (changes + 1, changes == 2)
