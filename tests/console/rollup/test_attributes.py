"""The rollups of attributes never change an answer, and spans are read only where the rollups lack it.

Each test compares answers with counts in plain Python over the spans that are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from receiver.config.promoted import promoted_attributes
from receiver.console.queries.rollup.attributes import VALUE_BYTES_MAX, VALUES_MAX
from receiver.console.queries.rollup.derivation import derive
from receiver.console.queries.rollup.slots import invalidate
from receiver.engine import schema
from receiver.engine.promoted import promoted_columns
from receiver.engine.store import Parameters, Store
from tests.support import engines
from tests.support.attribute_rollups import (
    ALL_NS,
    DAY_NS,
    ODD_KEY,
    ROLLUPS,
    ReadTables,
    asked,
    assert_equal,
    attribute_span,
    expected,
    tables_of,
)
from tests.support.cases import each_case
from tests.support.fake_clickhouse import schema_sources
from tests.support.random_filters import Span, insert
from tests.support.rollups import CLOSING, HOUR_S, MIDNIGHT_S, derive_all, due_count


@pytest.mark.usefixtures("spans")
def test_closed_hours_are_answered_without_spans(store: Store) -> None:
    for key in (None, "http.route", "k", "absent"):
        assert tables_of(store, key) == {"rollup"}, key
    # Spans have this attribute, and it is not promoted.
    assert tables_of(store, ODD_KEY) == {"rollup", "spans"}
    assert tables_of(store, "k", (DAY_NS[0] + 10**9, DAY_NS[1])) == {"rollup", "spans"}
    invalidate(store, None)
    assert tables_of(store, None) == {"spans"}


def test_proof_is_kept_until_a_rollup_of_attributes_changes(store: Store, spans: list[Span]) -> None:
    recorded = ReadTables(store)
    for key in (None, "k", "host"):
        assert asked(recorded, key, DAY_NS) == expected(spans, key, DAY_NS)
    assert recorded.proofs == 1
    lose_values(store)

    assert asked(recorded, "k", DAY_NS) == expected(spans, "k", DAY_NS)
    assert (recorded.proofs, recorded.reads_spans) == (2, True)


def test_filter_by_project_is_answered_by_the_rollup(store: Store, spans: list[Span]) -> None:
    for key in (None, "http.route", "k", ODD_KEY):
        assert asked(store, key, ALL_NS, "project=prj_1") == expected(spans, key, ALL_NS, "prj_1")
        assert asked(store, key, ALL_NS, "-project=prj_2") == expected(spans, key, ALL_NS, "prj_1")
    assert tables_of(store, "k", text="project=prj_1") == {"rollup"}
    assert tables_of(store, None, text="project=prj_1 or project=prj_2") == {"rollup"}


def test_other_filters_read_the_spans(store: Store, spans: list[Span]) -> None:
    of_service = [span for span in spans if span["ServiceName"] == "web"]

    for key in (None, "k"):
        assert asked(store, key, ALL_NS, "service=web") == expected(of_service, key, ALL_NS)
        assert tables_of(store, key, text="project=prj_1 service=web") == {"spans"}


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
def test_damaged_rollup_is_not_read_and_derived_again(
    store: Store, spans: list[Span], damage: Callable[[Store], None]
) -> None:
    damage(store)

    assert_equal(store, spans)
    assert due_count(store) >= 24
    derive_all(store)
    assert_equal(store, spans)
    for key in (None, "k", "http.route"):
        assert tables_of(store, key) == {"rollup"}


@pytest.mark.parametrize("store", ["own", engines.SERVER], indirect=True)
def test_dropped_tables_change_no_answer(store: Store, spans: list[Span]) -> None:
    for table in ROLLUPS:
        store.command(f"DROP TABLE {table} SYNC")

    assert_equal(store, spans)


@engines.OWN_TABLES
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


VALUES_OF_PROJECT = {
    "maximum": [str(number) for number in range(VALUES_MAX)],
    "too many": [str(number) for number in range(VALUES_MAX + 1)],
    "long": ["x" * VALUE_BYTES_MAX, ""],
    "too long": ["x" * (VALUE_BYTES_MAX + 1), ""],
    "too long in UTF-8": ["é" * (VALUE_BYTES_MAX // 2 + 1)],
}


@pytest.fixture
def many_values(store: Store) -> list[Span]:
    """Store an hour with the values of each project, so that none is a reason to read spans of another."""
    spans = [
        attribute_span(5, number, value, ProjectId=project)
        for project, values in VALUES_OF_PROJECT.items()
        for number, value in enumerate(values)
    ]
    # The other hours have a slot only if they have spans.
    spans += [attribute_span(hour, hour, "a", ProjectId="few") for hour in range(24)]
    insert(store, spans)
    derive_all(store)
    return spans


@each_case("project", [*VALUES_OF_PROJECT, "few"])
def test_only_few_and_short_values_are_listed(store: Store, many_values: list[Span], project: str) -> None:
    is_listed = "too" not in project
    text = f'project="{project}"'

    for key in ("http.route", "host"):
        assert asked(store, key, DAY_NS, text) == expected(many_values, key, DAY_NS, project)
        assert tables_of(store, key, text=text) == ({"rollup"} if is_listed else {"rollup", "spans"})
    rows = store.rows(
        "SELECT max(length(Value)), max(IsOmitted) FROM otel_attribute_values "
        "WHERE ProjectId = {project:String}",
        {"project": project},
    )
    longest = max(len(value.encode()) for value in VALUES_OF_PROJECT.get(project, "a"))
    assert rows == [(longest if is_listed else 0, not is_listed)]


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
def test_derivation_during_a_question_is_noticed(store: Store, spans: list[Span], changes: int) -> None:
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
