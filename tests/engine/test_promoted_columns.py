"""Columns of promoted attributes: added to new and existing tables, and in agreement with the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receiver.config.promoted import PromotedAttribute, promoted_attributes
from receiver.engine import promoted, schema
from receiver.engine.promoted import promoted_columns
from receiver.engine.store import Parameters, Store, Version
from receiver.errors import StoreTrouble
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker

STANDARD = promoted_attributes()
WITH_TENANT = promoted_attributes(("span:app.tenant customer",))


def apply(store: Store, attributes: tuple[PromotedAttribute, ...] = ()) -> list[str]:
    return schema.apply(store, schema_sources(), 30, attributes)


def insert(store: Store, attributes: str, resource: str = "{}") -> None:
    store.command(
        "INSERT INTO otel_traces (Timestamp, SpanAttributes, ResourceAttributes) "  # noqa: S608 - constants
        f"VALUES (now64(9), {attributes}, {resource})"
    )


def column(store: Store, name: str) -> list[object]:
    rows = store.rows(f"SELECT {name} FROM otel_traces ORDER BY Timestamp")  # noqa: S608 - a constant
    return [value for (value,) in rows]


def part_names(store: Store) -> list[str]:
    rows = store.rows(
        "SELECT name FROM system.parts WHERE active AND database = currentDatabase() "
        "AND table = 'otel_traces' ORDER BY name"
    )
    return [str(name) for (name,) in rows]


def test_columns_of_a_new_table_are_added_once(store: Store) -> None:
    before = schema.status(store, schema_sources(), 30, STANDARD)
    first, second = apply(store, STANDARD), apply(store, STANDARD)
    after = schema.status(store, schema_sources(), 30, STANDARD)

    assert (first[-1], second) == (schema.PROMOTED, [])
    assert (before.missing[-1], after.applied[-1], after.missing) == (schema.PROMOTED, schema.PROMOTED, ())
    assert (
        promoted_columns(store).column_of.items()
        >= {
            ("span", "http.request.method"): "Span_http_request_method",
            ("resource", "cloud.region"): "Resource_cloud_region",
            ("event", "exception.type"): "Event_exception_type",
        }.items()
    )


def test_value_is_that_of_the_first_spelling_and_absent_is_not_empty(store: Store) -> None:
    apply(store, STANDARD)
    for attributes in ("{'http.method': 'PUT', 'http.request.method': 'GET'}", "{'http.method': 'PUT'}"):
        insert(store, attributes)
    insert(store, "{'http.request.method': '', 'http.method': 'PUT'}")
    insert(store, "{}")

    assert column(store, "Span_http_request_method") == ["GET", "PUT", "", None]


def test_existing_rows_get_values_without_being_rewritten(store: Store) -> None:
    apply(store)
    insert(store, "{'http.route': '/a'}", "{'http.route': '/b', 'service.version': '1'}")
    parts = part_names(store)

    apply(store, STANDARD)

    assert part_names(store) == parts
    assert column(store, "(Span_http_route, Resource_service_version, PromotedElsewhere)") == [
        ("/a", "1", {"http.route": "/b"})
    ]


def test_segments_fill_the_columns_of_new_attributes(store: Store, tmp_path: Path) -> None:
    apply(store, STANDARD)
    maker = SegmentMaker(tmp_path)
    older, newer = maker.make(0), maker.make(0)
    store.insert(older.path, token="a", query_id="a")
    apply(store, promoted_attributes(("span:k",)))
    store.insert(newer.path, token="b", query_id="b")

    assert column(store, "Span_k") == column(store, "SpanAttributes['k']") == ["v0", "v0"]


def test_columns_are_not_part_of_all_columns(store: Store) -> None:
    apply(store)
    insert(store, "{'http.route': '/a'}")
    before = store.rows("SELECT * FROM otel_traces")

    apply(store, STANDARD)

    assert store.rows("SELECT * FROM otel_traces") == before


def test_changed_spellings_replace_stored_values(store: Store) -> None:
    apply(store, WITH_TENANT)
    insert(store, "{'customer': 'old', 'client': 'new'}")
    store.command("OPTIMIZE TABLE otel_traces FINAL")
    before = column(store, "Span_app_tenant")

    changes = apply(store, promoted_attributes(("span:app.tenant client",)))

    assert (before, changes, column(store, "Span_app_tenant")) == (["old"], [schema.PROMOTED], ["new"])


def test_column_with_another_expression_is_replaced(store: Store) -> None:
    apply(store, STANDARD)
    insert(store, "{'http.route': '/a'}")
    store.command("ALTER TABLE otel_traces MODIFY COLUMN Span_http_route MATERIALIZED SpanAttributes['x']")

    assert apply(store, STANDARD) == [schema.PROMOTED]
    assert column(store, "Span_http_route") == ["/a"]
    assert apply(store, STANDARD) == []


def test_column_of_an_older_engine_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(promoted, "ELEMENT_OR_NULL_SINCE", Version(99, 0))
        apply(store, STANDARD)

    assert apply(store, STANDARD) == []


def test_attribute_that_is_promoted_no_longer_keeps_its_column(store: Store) -> None:
    apply(store, WITH_TENANT)
    insert(store, "{'customer': 'a'}", "{'app.tenant': 'b'}")

    assert apply(store, STANDARD) == []
    assert column(store, "(Span_app_tenant, PromotedElsewhere)") == [("a", {"app.tenant": "b"})]


def test_receivers_with_different_attributes_do_not_replace_the_columns_of_each_other(store: Store) -> None:
    other = promoted_attributes(("resource:app.cell",))

    assert apply(store, WITH_TENANT)[-1] == apply(store, other)[-1] == schema.PROMOTED
    assert apply(store, WITH_TENANT) == apply(store, other) == []
    assert promoted_columns(store).elsewhere >= {("resource", "app.tenant"), ("span", "app.cell")}


def test_interrupted_replacement_of_a_column_is_completed_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(store, STANDARD)
    command = store.command

    def interrupted(statement: str) -> None:
        if "ADD COLUMN" in statement:
            raise StoreTrouble("gone")
        command(statement)

    with monkeypatch.context() as patch:
        patch.setattr(store, "command", interrupted)
        with pytest.raises(StoreTrouble):
            apply(store, WITH_TENANT)
    between = promoted_columns(store)

    assert (between.elsewhere, apply(store, WITH_TENANT)) == (frozenset(), [schema.PROMOTED])
    assert ("resource", "app.tenant") in promoted_columns(store).elsewhere


def test_columns_are_read_again_only_after_a_command(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(store, STANDARD)
    rows, read = store.rows, list[str]()

    def counted(statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        read.append(statement)
        return rows(statement, parameters)

    monkeypatch.setattr(store, "rows", counted)
    first, second = promoted_columns(store), promoted_columns(store)
    assert first == second
    assert len(read) == 1
    store.command("ALTER TABLE otel_traces DROP COLUMN Span_http_route")

    assert ("span", "http.route") in first.column_of
    assert ("span", "http.route") not in promoted_columns(store).column_of


def test_computed_columns_of_an_operator_are_ignored(store: Store) -> None:
    apply(store, STANDARD)
    store.command(
        "ALTER TABLE otel_traces ADD COLUMN Mine String MATERIALIZED 'x' COMMENT 'span:http.url', "
        "ADD COLUMN Other String MATERIALIZED 'x'"
    )

    assert not {"Mine", "Other"} & set(promoted_columns(store).column_of.values())
    assert apply(store, STANDARD) == []


def test_table_over_other_tables_is_not_altered(store: Store) -> None:
    apply(store)
    store.command("RENAME TABLE otel_traces TO otel_traces_local")
    store.command("CREATE TABLE otel_traces ENGINE = Merge(currentDatabase(), '^otel_traces_local$')")

    assert schema.apply(store, schema_sources(), 0, STANDARD) == []
    assert schema.PROMOTED not in schema.status(store, schema_sources(), 0, STANDARD).missing
    assert promoted_columns(store) == promoted.PromotedColumns({}, frozenset())


def test_server_that_returns_no_rows_gets_every_column(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "rows", lambda *_: [])

    outdated = promoted.outdated(store, promoted_attributes(), Version(26, 9))

    assert len(outdated) == len(promoted_attributes()) + 1
