"""Checks of the query trees that the engine makes of a statement: their functions and their tables.

parsed tree      printed before the engine resolves any name, so printing it runs nothing
resolved tree    printed after that: has the functions and tables that the engine executes, also those that
a name without parentheses stands for, as in `arrayMap(lower, …)`. Resolving evaluates
constants and scalar subqueries, so it is the last check
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from receiver.console.queries.raw_sql.allowed import TABLE_FUNCTIONS, TABLES
from receiver.console.queries.raw_sql.catalog import Catalog
from receiver.errors import InvalidStatement

_FUNCTION: Final = re.compile(r"\bfunction_name: (.*?)(?:, function_type: .*)?$")
_TABLE_FUNCTION: Final = re.compile(r"\btable_function_name: (.*?)$")
_CTE: Final = re.compile(r"\bcte_name: (.*?)(?:, |$)")
_MODIFIERS: Final = r"(?:, (?:final|sample_size|temporary_table_name): .*)?$"
_PARSED_TABLE: Final = re.compile(rf"^ *IDENTIFIER .*\bidentifier: (.*?){_MODIFIERS}")
_RESOLVED_TABLE: Final = re.compile(rf"^ *TABLE id: .*\btable_name: (.*?){_MODIFIERS}")
_ABOVE_TABLES: Final = ("JOIN TREE", "TABLE EXPRESSION", "LEFT TABLE EXPRESSION", "RIGHT TABLE EXPRESSION")
_NO_TABLE: Final = "system.one"
"""The engine adds this table to a SELECT without FROM. The token check refuses it in a statement."""
_OF_RECURSION: Final = re.compile(r"_temporary_and_external_tables\._tmp_[0-9a-f-]+")
"""Table of the engine that holds the rows of a recursive CTE."""


def check_parsed(tree: list[str], catalog: Catalog) -> None:
    """Raise `InvalidStatement` for a function or a table that is not allowed."""
    ctes = {match[1] for line in tree if (match := _CTE.search(line))}
    _check_tables(_tables_of_parsed(tree), TABLES | ctes, catalog)
    _check_functions(tree, catalog)


def check_resolved(tree: list[str], catalog: Catalog) -> None:
    """Raise `InvalidStatement` for a function or a table that is not allowed."""
    names = (match[1].replace("`", "") for line in tree if (match := _RESOLVED_TABLE.match(line)))
    _check_tables((name for name in names if not _OF_RECURSION.fullmatch(name)), frozenset(), catalog)
    _check_functions(tree, catalog)


def _check_tables(names: Iterable[str], unqualified: frozenset[str], catalog: Catalog) -> None:
    allowed = {
        _NO_TABLE,
        *catalog.extras.tables,
        *unqualified,
        *(f"{catalog.database}.{name}" for name in TABLES),
    }
    if not set(names) <= allowed:
        raise InvalidStatement(f"a table is not allowed; expected one of {', '.join(sorted(TABLES))}")


def _check_functions(tree: list[str], catalog: Catalog) -> None:
    for line in tree:
        if (match := _TABLE_FUNCTION.search(line)) and match[1].lower() not in TABLE_FUNCTIONS:
            raise InvalidStatement(f"the table function {match[1]} is not allowed")
        if (match := _FUNCTION.search(line)) and not catalog.allows(match[1]):
            raise InvalidStatement(f"the function {match[1]} is not allowed")
        if line.lstrip().startswith("SETTINGS "):
            raise InvalidStatement("the keyword SETTINGS is not allowed")


def _tables_of_parsed(tree: list[str]) -> Iterator[str]:
    """Yield the names of tables: identifiers whose parent line, which is indented less, is a table clause."""
    above: list[str] = []
    for line in tree:
        depth = (len(line) - len(line.lstrip())) // 2
        # A line without a parent is not in the engine's form. It counts as a table and is refused.
        place = above[depth - 1].strip() if 0 < depth <= len(above) else _ABOVE_TABLES[0]
        if place in _ABOVE_TABLES and (match := _PARSED_TABLE.match(line)):
            yield match[1]
        above[depth:] = [line]
