"""Guard of SQL: attacks are refused on both engines, useful statements are answered, limits hold."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from receiver.console.queries.raw_sql import allowed, guard, statement
from receiver.console.queries.raw_sql.catalog import Catalog
from receiver.console.queries.raw_sql.statement import LINES_MAX, QUERY_CHARS_MAX, SETTINGS, parse_sql, sql
from receiver.console.queries.raw_sql.tokens import tokens_of
from receiver.engine.store import Store
from receiver.errors import InvalidStatement, MalformedBody, ReceiverError, StoreTrouble
from tests.support import engines
from tests.support.answers import Row, rows_of
from tests.support.cases import RANDOM_CASES, each_case
from tests.support.random_filters import Span, random_span
from tests.support.sql_attacks import composed_attacks
from tests.support.sql_statements import MARK, READS_A_FILE, REFUSED
from tests.support.sql_useful import LIMITED, USEFUL

SECRET = "s3cret"
OBJECTS = (
    "CREATE TABLE secret (a String) ENGINE = MergeTree ORDER BY a",
    "INSERT INTO secret VALUES ('s3cret')",
    "CREATE VIEW secret_view AS SELECT * FROM secret",
    "CREATE VIEW parameterized AS SELECT {x:UInt8} AS x",
)
COUNTED_AS_COLUMNS = {"hour", "timestamp", "version"}
"""Functions that are also names of columns. None of them is harmful."""


@pytest.fixture(scope="module")
def spans() -> Sequence[Span]:
    rng = random.Random(3)
    return [{**random_span(rng, number), "StatusMessage": SECRET} for number in range(40)]


@pytest.fixture(scope="module")
def database(store: Store) -> Iterator[str]:
    """Create tables that are not ours, and yield the name of the database."""
    for command in OBJECTS:
        store.command(command)
    yield str(store.rows("SELECT currentDatabase()")[0][0])
    for table in ("parameterized", "secret_view", "secret"):
        store.command(f"DROP TABLE {table}")


def answer(store: Store, text: str, limit: int = 100) -> list[Row]:
    return rows_of(sql(store, parse_sql({"query": text, "limit": str(limit)})).pieces())


def accepted(store: Store, statements: Sequence[str]) -> list[str]:
    """Return the statements that are not refused, or whose refusal quotes a secret."""
    found = []
    for text in statements:
        try:
            answer(store, text)
        except InvalidStatement as refusal:
            if not (MARK in str(refusal) or SECRET in str(refusal)):
                continue
        found.append(text)
    return found


def placed(text: str, database: str, directory: Path) -> str:
    return text.replace("{database}", database).replace("{directory}", str(directory))


@pytest.mark.parametrize("group", REFUSED)
def test_every_attack_is_refused_and_changes_nothing(
    store: Store, database: str, tmp_path: Path, group: str
) -> None:
    before = store.rows("SELECT count() FROM otel_traces")

    assert accepted(store, [placed(text, database, tmp_path) for text in REFUSED[group]]) == []

    assert list(tmp_path.iterdir()) == []
    assert store.rows("SELECT count() FROM otel_traces") == before


@pytest.mark.random_cases
def test_composed_attacks_are_refused_and_their_harmless_twins_answered(store: Store) -> None:
    attacks = composed_attacks(random.Random(5), count=RANDOM_CASES)

    assert accepted(store, [attack for attack, _ in attacks]) == []
    for _, twin in attacks:
        assert [list(row.values()) for row in answer(store, twin)] == [["a"]], twin


@pytest.mark.parametrize("check", ["check_tokens", "check_parsed", "check_resolved"])
def test_attacks_on_files_are_refused_even_if_one_check_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    monkeypatch.setattr(statement, check, lambda *_: None)

    for text in READS_A_FILE:
        # Without the tokens, the engine itself refuses some table functions.
        with pytest.raises((InvalidStatement, StoreTrouble)) as refusal:
            answer(store, text)
        assert MARK not in str(refusal.value)


def test_useful_statements_are_answered(store: Store, database: str, tmp_path: Path) -> None:
    for text in USEFUL:
        answer(store, placed(text, database, tmp_path))


def test_answer_has_the_rows_of_the_statement(store: Store, spans: Sequence[Span]) -> None:
    text = "SELECT SpanKind, countIf(StatusCode = 'Error') AS errors FROM otel_traces GROUP BY ALL ORDER BY 1"

    kinds = sorted({span["SpanKind"] for span in spans})
    assert answer(store, text) == [
        {
            "SpanKind": kind,
            "errors": sum(span["SpanKind"] == kind and span["StatusCode"] == "Error" for span in spans),
        }
        for kind in kinds
    ]


def test_text_that_looks_like_sql_is_returned_unchanged(store: Store) -> None:
    hostile = "file('/etc/passwd') -- SETTINGS readonly = 0; /* INTO OUTFILE `x` \\ \n"
    quoted = hostile.replace("\\", "\\\\").replace("'", "\\'")

    assert answer(store, "SELECT 'TEXT' AS x".replace("TEXT", quoted)) == [{"x": hostile}]


@each_case(("rows", "is_cut"), [(2, False), (3, False), (4, True)])
def test_answer_is_cut_at_its_limit(store: Store, rows: int, *, is_cut: bool) -> None:
    text = "SELECT number FROM numbers(ROWS)".replace("ROWS", str(rows))
    lines = sql(store, parse_sql({"query": text, "limit": "3"}))

    assert b"".join(lines.pieces()).count(b"\n") == min(rows, 3)
    assert lines.is_cut == is_cut


@each_case("text", LIMITED)
def test_limit_of_the_connection_ends_an_expensive_statement(
    store: Store, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    tight = {**SETTINGS, "max_execution_time": "1", "max_memory_usage": str(64 << 20)}
    monkeypatch.setattr(statement, "SETTINGS", tight)

    with pytest.raises(ReceiverError):
        answer(store, text)


def test_read_only_connection_changes_neither_data_nor_settings(store: Store) -> None:
    def refused(statement: str) -> bool:
        try:
            with store.read_only({"max_execution_time": "7"}) as connection:
                connection.rows(statement)
        except StoreTrouble as trouble:
            return trouble.code == 164
        return False

    with store.read_only({"max_execution_time": "7"}) as connection:
        assert connection.rows("SELECT getSetting('max_execution_time'), getSetting('readonly')") == [(7, 1)]
    assert refused("CREATE TABLE created (a UInt8) ENGINE = MergeTree ORDER BY a")
    assert refused("INSERT INTO otel_traces (TraceId) SELECT 'a'")
    assert refused("SELECT 1 SETTINGS max_execution_time = 0")
    # Other connections are not affected.
    assert store.rows("SELECT getSetting('readonly')") == [(0,)]


@each_case(
    ("text", "reason"),
    [
        ("SELECT nosuch FROM otel_traces", "Unknown expression identifier `nosuch`"),
        ("SELECT length(1)", "Illegal type UInt8 of argument of function length"),
        ("SELECT FROM WHERE", "Syntax error: failed at position"),
        ("SELECT sleep(1)", "the function sleep is not allowed"),
        ("SELECT 1 SETTINGS max_threads = 1", "the keyword SETTINGS is not allowed"),
        ("SELECT 1; SELECT 2", "Multi-statements are not allowed"),
    ],
)
def test_refusal_says_what_is_wrong_with_the_statement(store: Store, text: str, reason: str) -> None:
    with pytest.raises(InvalidStatement) as refusal:
        answer(store, text)

    assert reason in str(refusal.value)


@each_case(
    "text",
    [
        "SELECT toUInt8(StatusMessage) FROM otel_traces",
        "SELECT (SELECT any(StatusMessage) FROM otel_traces)::UInt8",
        "SELECT CAST(StatusMessage AS Enum8('a' = 1)) FROM otel_traces",
        "SELECT toDateTime(StatusMessage), parseDateTime(StatusMessage, '%Y') FROM otel_traces",
        "SELECT 1 WHERE (SELECT any(StatusMessage) FROM otel_traces)",
        "SELECT 1 LIMIT (SELECT any(StatusMessage) FROM otel_traces)",
        "SELECT plus((SELECT any(StatusMessage) FROM otel_traces), 1)",
        "SELECT JSON_VALUE('{}', (SELECT any(StatusMessage) FROM otel_traces))",
        "SELECT match('a', concat((SELECT any(StatusMessage) FROM otel_traces), '['))",
        "SELECT toTimeZone(now(), (SELECT any(StatusMessage) FROM otel_traces))",
        "SELECT dateDiff((SELECT any(StatusMessage) FROM otel_traces), now(), now())",
    ],
)
def test_error_of_the_engine_contains_no_value_of_a_row(store: Store, text: str) -> None:
    with pytest.raises(InvalidStatement) as refusal:
        answer(store, text)

    assert SECRET not in str(refusal.value)


@each_case(
    "query",
    [
        {},
        {"query": " \n"},
        {"query": "SELECT '\0'"},
        {"query": "SELECT '\udc00'"},
        {"query": "SELECT 1".ljust(QUERY_CHARS_MAX + 1)},
        {"query": "SELECT 1", "limit": str(LINES_MAX + 1)},
        {"query": "SELECT 1", "limit": "0"},
        {"query": "SELECT 1", "database": "system"},
    ],
)
def test_parameters_are_checked_before_the_store_is_asked(query: dict[str, str]) -> None:
    with pytest.raises(MalformedBody):
        parse_sql(query)


def test_statement_of_the_maximum_length_is_answered(store: Store) -> None:
    text = "SELECT 1 AS x WHERE '' = ''".ljust(QUERY_CHARS_MAX)

    assert answer(store, text) == [{"x": 1}]


@each_case("text", ["SELECT 1 AS x LIMIT 0", "(SELECT 1 AS x LIMIT 0) UNION ALL (SELECT 2 LIMIT 0)"])
def test_statement_that_asks_for_no_row_is_answered(store: Store, text: str) -> None:
    assert answer(store, text) == []


def test_database_that_finds_files_by_their_names_is_refused(engine_dir: Path) -> None:
    store = engines.bare(engine_dir, "default")

    with pytest.raises(InvalidStatement, match="finds tables under any name"):
        answer(store, "SELECT 1")
    store.close()


def test_table_with_the_name_of_a_column_is_not_read(engine_dir: Path) -> None:
    with engines.embedded(engine_dir) as store:
        store.command("CREATE TABLE Duration (a String) ENGINE = MergeTree ORDER BY a")

        texts = ["SELECT * FROM Duration", "SELECT 'a' IN Duration", "SELECT Duration FROM otel_traces"]
        assert accepted(store, texts) == []


def test_function_of_an_administrator_is_refused_under_the_name_of_an_allowed_one() -> None:
    catalog = Catalog(frozenset({"select"}), frozenset(), frozenset({"lower"}), "otel")

    with pytest.raises(InvalidStatement, match="the function lower is not allowed"):
        guard.check_tokens(tokens_of("SELECT lower('A')"), catalog)


def test_listed_functions_are_those_of_the_engine(store: Store) -> None:
    rows = store.rows("SELECT name, is_aggregate FROM system.functions")
    ordinary = {str(name).lower() for name, is_aggregate in rows if not is_aggregate}
    aggregate = {str(name).lower() for name, is_aggregate in rows if is_aggregate}

    # The engine composes `sumMap` of `sum` and `Map`, and parses `exists` and `grouping` itself.
    composed = {"summap", "minmap", "maxmap"}
    assert {name.lower() for name in allowed.AGGREGATES} - composed <= aggregate
    assert {name.lower() for name in allowed.ORDINARY} - {"exists", "grouping"} <= ordinary
    keywords = {name.lower() for name in allowed.KEYWORDS | allowed.BEFORE_PARENTHESIS}
    assert all(map(allowed.is_allowed_function, keywords & (ordinary | aggregate)))


def test_no_harmful_function_has_the_name_of_a_column(store: Store) -> None:
    names = store.rows(
        "SELECT DISTINCT lower(name) FROM system.functions WHERE lower(name) IN "
        "(SELECT lower(splitByChar('.', name)[1]) FROM system.columns WHERE database = currentDatabase())"
    )

    assert {str(name) for (name,) in names} <= COUNTED_AS_COLUMNS


def test_tokens_are_those_of_the_engines_spelling(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[list[str]] = []
    monkeypatch.setattr(
        statement, "check_tokens", lambda tokens, _: checked.append([token.text for token in tokens])
    )

    answer(store, "select /* a */ 1 as `x` -- b\n")

    assert checked == [["SELECT", "1", "AS", "x"]]
