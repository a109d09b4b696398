"""Statements that clients send besides SELECT, and attacks on the guard through this endpoint."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.console.queries.raw_sql import client_statement, statement
from receiver.console.queries.raw_sql.allowed import FOR_CLIENTS, TABLES
from receiver.console.queries.raw_sql.client_statement import ClientStatement
from receiver.engine.store import Store
from receiver.errors import ReceiverError
from tests.support.api import Client
from tests.support.cases import each_case
from tests.support.clickhouse_endpoint import code_of, lines
from tests.support.sql_attacks import composed_attacks
from tests.support.sql_statements import MARK, READS_A_FILE, REFUSED
from tests.support.sql_useful import USEFUL
from tests.support.tool_api import shop_store

SECRET = "s3cret"
ANSWERED = {
    "SELECT * FROM system.tables",
    "SELECT * FROM `system`.`tables`",
    "SELECT * FROM system.one",
    "WITH otel_traces AS (SELECT * FROM system.tables) SELECT * FROM otel_traces",
    "SELECT 'a' NOT IN (SELECT name FROM system.tables)",
    "SELECT * FROM otel_traces JOIN system.tables ON 1",
    "WITH x AS (SELECT * FROM system.tables) SELECT * FROM x",
    "SELECT 1 UNION ALL SELECT 1 FROM system.tables",
    "SELECT exists(SELECT 1 FROM system.tables)",
    "SELECT (SELECT count() FROM system.tables)",
    "SELECT currentUser(), user(), USER()",
    "SELECT currentDatabase(), DATABASE()",
    "SELECT version()",
    "SHOW TABLES",
}
"""Statements that the API refuses and this endpoint answers, with rows about our own tables only."""
PLACEHOLDERS = (
    "SELECT file({p:String})",
    "SELECT * FROM {p:String}",
    "SELECT arrayMap({p:String}, [1])",
    "SELECT COLUMNS({p:String}) FROM otel_traces",
    "SELECT CAST(1, {p:String})",
    "SELECT _CAST(1, {p:String})",
    "SELECT _CAST('{}', 'JSON')",
    "SELECT 1 INTO OUTFILE {p:String}",
    "SELECT 1 SETTINGS max_threads = {p:UInt8}",
    "SELECT * FROM file({p:String}, {p:String})",
    "SELECT {p:Identifier}",
    "SELECT {p:`Identifier`}",
    "SELECT {p: Identifier }",
)
VALUES = ("/etc/passwd", "file", "CSV", "' OR file('/etc/passwd')", "1", "otel_traces")


EACH_STEP = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.fault_tier)])
"""Each fourth attack in `make test`: a statement takes a tenth of a second, and the API's tests send all."""


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    """Yield a store with a table of an administrator besides ours."""
    with shop_store(engine_dir) as store:
        for command in (
            f"CREATE TABLE secret ({SECRET} String) ENGINE = MergeTree ORDER BY {SECRET}",
            f"CREATE VIEW secret_view AS SELECT '{SECRET}' AS a",
            "INSERT INTO secret VALUES ('s3cret')",
            "CREATE VIEW parameterized AS SELECT {x:UInt8} AS x",
        ):
            store.command(command)
        yield store


def answer(store: Store, text: str, **values: str) -> bytes:
    return b"".join(client_statement.answer(store, ClientStatement(text, "JSONEachRow", texts=values)))


def accepted(store: Store, statements: list[str], **values: str) -> list[str]:
    """Return the statements that are not refused, or whose refusal quotes a secret."""
    found = []
    for text in statements:
        try:
            answer(store, text, **values)
        except ReceiverError as refusal:
            if not (MARK in str(refusal) or SECRET in str(refusal)):
                continue
        found.append(text)
    return found


def placed(store: Store, text: str, directory: Path) -> str:
    database = str(store.rows("SELECT currentDatabase()")[0][0])
    return text.replace("{database}", database).replace("{directory}", str(directory))


@EACH_STEP
@each_case("group", REFUSED)
def test_every_attack_is_refused_here_too(store: Store, tmp_path: Path, group: str, step: int) -> None:
    attacks = [placed(store, text, tmp_path) for text in REFUSED[group][::step] if text not in ANSWERED]

    assert accepted(store, attacks) == []
    assert list(tmp_path.iterdir()) == []


def test_statement_that_is_answered_here_only_shows_no_other_table(store: Store) -> None:
    listed = {text for group in REFUSED.values() for text in group}

    assert listed >= ANSWERED
    for text in ANSWERED:
        assert SECRET not in answer(store, text).decode(), text


@each_case("prefix", ["DESCRIBE TABLE ", "DESCRIBE (SELECT * FROM ", "EXPLAIN SELECT * FROM ", "EXPLAIN "])
def test_attack_behind_describe_and_explain_is_refused(store: Store, prefix: str) -> None:
    for text in (
        "file('/etc/passwd')",
        "secret",
        "url('http://127.0.0.1:1')",
        "numbers(1) SETTINGS readonly = 0",
    ):
        assert accepted(store, [f"{prefix}{text}{')' * prefix.count('(')}"]) == [], text


@EACH_STEP
def test_explanation_of_an_attack_on_a_file_is_refused(store: Store, step: int) -> None:
    assert accepted(store, [f"EXPLAIN {text}" for text in READS_A_FILE[::step]]) == []


def test_composed_attacks_are_refused(store: Store) -> None:
    attacks = composed_attacks(random.Random(7), count=20)

    assert accepted(store, [attack for attack, _ in attacks]) == []


@EACH_STEP
@each_case("value", VALUES)
def test_value_of_a_parameter_is_never_a_name(store: Store, value: str, step: int) -> None:
    assert accepted(store, list(PLACEHOLDERS[VALUES.index(value) % step :: step]), p=value) == []


@pytest.mark.parametrize("check", ["check_tokens", "check_parsed", "check_resolved"])
def test_attacks_on_files_are_refused_even_if_one_check_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    monkeypatch.setattr(statement, check, lambda *_: None)

    for text in READS_A_FILE:
        with pytest.raises(ReceiverError) as refusal:
            answer(store, text)
        assert MARK not in str(refusal.value)


@each_case(
    "text",
    [
        "SELECT name FROM system.tables AS t",
        "SELECT name FROM (SELECT * FROM system.tables)",
        "SELECT t.name FROM numbers(1) AS n RIGHT JOIN system.tables AS t ON 1 = 1",
        "SELECT DISTINCT name FROM system.tables UNION DISTINCT SELECT name FROM system.tables",
        "SELECT table AS name FROM system.columns",
        "WITH t AS (SELECT * FROM system.columns) SELECT DISTINCT table AS name FROM t",
        "SELECT c.table AS name FROM system.columns AS c JOIN system.tables AS t ON c.table = t.name",
        "SHOW TABLES",
    ],
)
def test_system_tables_have_rows_about_our_tables_only(store: Store, text: str) -> None:
    names = {json.loads(line)["name"] for line in answer(store, text).splitlines()}

    assert "otel_traces" in names
    assert names <= TABLES


@each_case(
    "text",
    [
        "SELECT 'secret' IN (SELECT name FROM system.tables) AS x",
        "SELECT countIf(name = 'secret') AS x FROM system.tables",
    ],
)
def test_other_table_is_not_found_by_a_condition(store: Store, text: str) -> None:
    assert json.loads(answer(store, text)) == {"x": 0}


def test_other_table_does_not_decide_whether_a_statement_fails(store: Store) -> None:
    """The guard evaluates scalar subqueries, so it must not see other rows than the statement does."""
    text = "SELECT (SELECT toUInt8(concat('1', any(name))) FROM system.tables WHERE name = 'NAME') AS x"

    assert json.loads(answer(store, text.replace("NAME", "secret"))) == {"x": 1}
    assert accepted(store, [text.replace("NAME", "otel_traces")]) == []


@each_case(
    "text",
    [
        "SELECT * FROM system.tables",
        "SELECT * FROM `system`.`tables` LIMIT 3",
        "SELECT t.* FROM numbers(1) AS n RIGHT JOIN system.tables AS t ON 1 = 1",
        "SELECT tables.*, toString(tuple(*)) FROM system.tables WHERE tables.name != 'FROM system.tables'",
        "SELECT COLUMNS('path|name') FROM system.databases",
        "SELECT d.*, t.* FROM system.databases AS d JOIN system.tables AS t ON d.name = t.database",
        "WITH t AS (SELECT * FROM system.databases) SELECT * FROM t",
        "SELECT * FROM system.columns",
        "SELECT * EXCEPT (description) FROM system.settings",
        "EXPLAIN SYNTAX SELECT (SELECT any(toString(tuple(*))) FROM system.databases)",
    ],
)
def test_paths_of_the_host_are_not_shown(store: Store, text: str) -> None:
    ((path,),) = store.rows("SELECT data_path FROM system.databases WHERE name = 'default'")

    body = answer(store, text)

    assert body
    assert path.encode() not in body
    assert b"store/" not in body


@each_case("column", ["data_paths", "metadata_path", "t.data_paths", "any(metadata_path)"])
def test_column_with_paths_is_unknown(store: Store, column: str) -> None:
    text = f"SELECT {column} FROM system.tables AS t"  # noqa: S608 - of constants

    assert accepted(store, [text, f"EXPLAIN {text}", f"SELECT 1 WHERE '' != ({text})"]) == []


def test_system_has_no_other_readable_tables(store: Store) -> None:
    names = [
        f"system.{name}" for (name,) in store.rows("SELECT name FROM system.tables WHERE database = 'system'")
    ]
    others = sorted(set(names) - FOR_CLIENTS.tables)

    assert len(others) > 50
    # A sample, because each statement takes a tenth of a second.
    for name in [*random.Random(3).sample(others, 12), "system.processes", "system.query_log"]:
        assert accepted(store, [f"EXPLAIN SELECT * FROM {name}", f"DESCRIBE TABLE {name}"]) == [], name  # noqa: S608 - has to be refused


def test_useful_statements_are_answered(store: Store, tmp_path: Path) -> None:
    for text in USEFUL[::3]:
        answer(store, placed(store, text, tmp_path))


@each_case(
    "text",
    [
        "SELECT version(), timezone()",
        "SELECT displayName(), version(), revision(), timezone()",
        "SELECT currentUser() AS user, timezone() AS timezone, version() AS version LIMIT 1",
        "SELECT name, value, readonly as readonly FROM system.settings LIMIT 10000",
        "SELECT name, is_aggregate FROM system.functions",
        "SELECT database, name, engine, total_rows FROM system.tables WHERE database = currentDatabase()",
        "SELECT name, type, comment, default_kind FROM system.columns WHERE table = 'otel_traces'",
    ],
)
async def test_statement_of_a_handshake_is_answered(client: Client, text: str) -> None:
    assert await lines(client, text) != []


async def test_databases_are_ours_only(client: Client, store: Store) -> None:
    own = [str(store.rows("SELECT currentDatabase()")[0][0])]

    assert await lines(client, "SHOW DATABASES") == own
    assert await lines(client, "SELECT name FROM system.databases") == own
    assert await lines(client, f"show tables from `{own[0]}` like '%trace\\_id%'") == [
        "otel_traces_trace_id_ts"
    ]
    assert await lines(client, "SHOW TABLES FROM system") == []


async def test_columns_of_a_table_and_of_a_statement_are_described(client: Client, store: Store) -> None:
    database = str(store.rows("SELECT currentDatabase()")[0][0])
    described = await lines(client, f'DESC TABLE "{database}"."otel_traces"')
    of_statement = await lines(
        client, "DESCRIBE (SELECT {a:UInt8} AS x FROM otel_traces) FORMAT CSV", param_a="1"
    )

    assert described[0].startswith("Timestamp\tDateTime64(9)")
    assert of_statement[0].startswith('"x","UInt8"')


@each_case("how", ["", "AST", "SYNTAX", "QUERY TREE", "PIPELINE", "ESTIMATE"])
async def test_statement_is_explained(client: Client, how: str) -> None:
    statement = f"EXPLAIN {how} SELECT count() FROM otel_traces WHERE SpanName = {{n:String}}"  # noqa: S608 - of constants

    assert await lines(client, statement, param_n="a") != []


@each_case(
    "text",
    [
        "EXPLAIN header = 1 SELECT 1",
        "EXPLAIN TABLE OVERRIDE numbers(1) COLUMNS (a UInt8)",
        "DESCRIBE TABLE otel_traces SETTINGS describe_include_subcolumns = 1",
        "DESCRIBE TABLE otel_traces INTO OUTFILE '/tmp/x'",
        "SHOW CREATE TABLE otel_traces",
        "SHOW PROCESSLIST",
        "SHOW TABLES INTO OUTFILE '/tmp/x'",
        "SHOW TABLES WHERE name = 'a'",
        "SHOW TEMPORARY TABLES",
        "EXISTS TABLE otel_traces",
    ],
)
async def test_other_question_is_refused(client: Client, text: str) -> None:
    status, _ = await code_of(client, text)

    assert status in {400, 403}


async def test_order_and_names_of_the_columns_are_those_of_the_statement(client: Client) -> None:
    ordered = await lines(client, "SELECT number AS n FROM numbers(100000) ORDER BY n DESC LIMIT 50000")
    named = await lines(client, "SELECT 1, 1, 2 AS x FORMAT CSVWithNames")

    assert ordered == [str(number) for number in range(99_999, 49_999, -1)]
    assert named == ['"1","1","x"', "1,1,2"]
