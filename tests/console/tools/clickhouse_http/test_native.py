"""Format Native in revisions of the protocol: the converted blocks have the values of the engine's."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from receiver.console.queries.raw_sql.native import empty_block, in_revision
from receiver.engine.store import Store
from receiver.errors import InvalidStatement
from tests.support.cases import each_case

INFO = bytes.fromhex("0100 02ffffffff 00")
WITH_FLAG, WITH_INFO = 54_460, 54_405
COLUMNS = {
    "number": "UInt64",
    "if(number = 1, repeat('x', 300), toString(number))": "String",
    "toFixedString('abc', 5)": "FixedString(5)",
    "number % 2 = 0": "UInt8",
    "if(number = 1, NULL, number)": "Nullable(UInt64)",
    "range(number)": "Array(UInt64)",
    "arrayMap(x -> range(x), range(number))": "Array(Array(UInt64))",
    "[NULL, 'a']": "Array(Nullable(String))",
    "map('k', toString(number), 'l', '')": "Map(String, String)",
    "(number, 'a', [1])": "Tuple(UInt64, String, Array(UInt8))",
    "CAST((1, 'a'), 'Tuple(a UInt8, `b c` String)')": "Tuple(a UInt8, `b c` String)",
    "toLowCardinality(toString(number % 2))": "LowCardinality(String)",
    "CAST(if(number = 1, NULL, 'a'), 'LowCardinality(Nullable(String))')": "LowCardinality(Nullable(String))",
    "CAST(range(number), 'Array(LowCardinality(String))')": "Array(LowCardinality(String))",
    "CAST(map('a', number), 'Map(LowCardinality(String), UInt64)')": "Map(LowCardinality(String), UInt64)",
    "emptyArrayString()": "Array(String)",
    "CAST('a', 'Enum8(\\'a\\' = 1, \\'b,(\\' = 2)')": "Enum8('a' = 1, 'b,(' = 2)",
    "toDecimal64(1, 2)": "Decimal(18, 2)",
    "toDecimal128(1, 2)": "Decimal(38, 2)",
    "toDateTime64('2026-01-01 00:00:00', 9, 'UTC')": "DateTime64(9, 'UTC')",
    "toDate('2026-01-01')": "Date",
    "toUUID('00000000-0000-0000-0000-000000000001')": "UUID",
    "toIPv4('1.2.3.4')": "IPv4",
    "1.5": "Float64",
    "true": "Bool",
    "NULL": "Nullable(Nothing)",
    "INTERVAL 1 DAY": "IntervalDay",
}
"""Expressions, and the type that the engine gives to each."""


def native(store: Store, statement: str) -> bytes:
    with store.read_only({}) as connection:
        return b"".join(connection.pieces(statement, "Native", {}))


def text(value: str) -> bytes:
    encoded = value.encode()
    assert len(encoded) < 0x80
    return bytes([len(encoded)]) + encoded


def cut(rng: random.Random, whole: bytes) -> Iterator[bytes]:
    """Yield a text in pieces of random length."""
    while whole:
        length = rng.choice([1, 2, 7, 1_000])
        yield whole[:length]
        whole = whole[length:]


@each_case("expression", COLUMNS)
def test_values_of_a_column_are_read_over(store: Store, expression: str) -> None:
    """The column after it is found only where the values really end."""
    rows, kind = 5, COLUMNS[expression]
    head = bytes([1, rows]) + text("v") + text(kind)
    single = native(store, f"SELECT {expression} AS v FROM numbers({rows})")  # noqa: S608 - of constants
    double = native(store, f"SELECT {expression} AS v, toUInt8(number) AS w FROM numbers({rows})")  # noqa: S608 - as above
    values = single.removeprefix(head)
    assert single != values, single

    converted = b"".join(in_revision(cut(random.Random(1), double), WITH_FLAG))

    second = text("w") + text("UInt8")
    assert converted == (
        INFO
        + bytes([2, rows])
        + text("v")
        + text(kind)
        + b"\0"
        + values
        + second
        + b"\0"
        + bytes(range(rows))
    )


def test_every_stored_column_is_converted_and_several_blocks_are_kept_apart(store: Store) -> None:
    blocks = [native(store, f"SELECT * FROM otel_traces LIMIT {count}") for count in (1, 3, 6)]  # noqa: S608 - as above
    together = b"".join(in_revision(cut(random.Random(2), b"".join(blocks)), WITH_INFO))

    assert together == b"".join(INFO + block for block in blocks)


@each_case("values", [200, 300, 70_000])
def test_places_in_a_dictionary_have_the_bytes_that_they_need(store: Store, values: int) -> None:
    block = native(store, f"SELECT toLowCardinality(toString(number)) AS v FROM numbers({values})")  # noqa: S608 - as above

    assert b"".join(in_revision(iter([block]), WITH_INFO)).count(INFO) == block.count(b"LowCardinality")


def test_stream_of_a_file_is_left_as_it_is(store: Store) -> None:
    block = native(store, "SELECT 1 AS x")

    assert list(in_revision(iter([block, block]), 0)) == [block, block]
    assert list(in_revision(iter([]), WITH_FLAG)) == []


def test_block_without_rows_has_the_columns() -> None:
    block = empty_block([("x", "UInt8"), ("y" * 200, "LowCardinality(String)")])

    assert block == b"\2\0\1x\5UInt8\xc8\1" + b"y" * 200 + text("LowCardinality(String)")
    assert b"".join(in_revision(iter([block]), WITH_INFO)) == INFO + block


@each_case("cut_bytes", [1, 2, 30])
def test_block_that_ends_early_is_an_error(store: Store, cut_bytes: int) -> None:
    block = native(store, "SELECT number, toString(number) AS s, range(number) AS a FROM numbers(9)")

    with pytest.raises(InvalidStatement, match="ended within a block"):
        list(in_revision(iter([block[:-cut_bytes]]), WITH_FLAG))


def test_type_without_a_known_length_is_an_error(store: Store) -> None:
    block = native(store, "SELECT sumState(number) AS x FROM numbers(3)")

    with pytest.raises(InvalidStatement, match="AggregateFunction"):
        list(in_revision(iter([block]), WITH_FLAG))
