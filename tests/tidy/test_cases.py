"""Tests of `tests/support/cases.py`: a table in one test reports every failing case."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from tests.support.cases import each_case


def failed_cases(failure: BaseException) -> list[str]:
    assert isinstance(failure, BaseExceptionGroup)
    return [note for error in failure.exceptions for note in error.__notes__]


def test_every_failing_case_is_reported_by_its_name() -> None:
    @each_case(("number", "name"), [(1, "a"), pytest.param(2, "b", id="second"), (3, "c")])
    def is_one(number: int, name: str, *, fixture: str) -> None:
        assert number == 1, name + fixture

    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases failed") as failure:
        is_one(fixture="f")

    assert failed_cases(failure.value) == ["failed case: second", "failed case: 3, 'c'"]
    assert list(inspect.signature(is_one).parameters) == ["fixture"]


def test_case_that_expected_an_error_fails() -> None:
    @each_case("text", ["1", "x"])
    def is_no_number(text: str) -> None:
        with pytest.raises(ValueError, match="invalid"):
            int(text)

    with pytest.raises(BaseExceptionGroup) as failure:
        is_no_number()

    assert failed_cases(failure.value) == ["failed case: '1'"]


def test_tables_of_an_asynchronous_test_are_combined() -> None:
    seen = []

    @each_case("outer", [1, 2])
    @each_case("inner", "ab")
    async def collect(outer: int, inner: str) -> None:
        seen.append((outer, inner))

    run: Any = collect
    asyncio.run(run())

    assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_names_of_cases_are_a_list_or_made_from_the_values() -> None:
    def fail(number: int) -> None:
        raise ValueError(number)

    for names in (["case 1", "case 2"], "case {}".format):
        with pytest.raises(BaseExceptionGroup) as failure:
            each_case("number", [1, 2], ids=names)(fail)()

        assert failed_cases(failure.value) == ["failed case: case 1", "failed case: case 2"]


def test_table_without_cases_fails() -> None:
    @each_case("number", [])
    def never(number: int) -> None:
        pytest.fail(f"{number}")

    with pytest.raises(AssertionError, match="no case"):
        never()
