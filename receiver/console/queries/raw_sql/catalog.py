"""Names that the engine knows: functions, tables, databases, keywords. Read for each statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from receiver.console.queries.raw_sql import allowed
from receiver.engine.sql_text import compose
from receiver.engine.store import ReadOnlyConnection, Store
from receiver.errors import InvalidStatement

_NAMES: Final = """
SELECT if(origin = 'System', 'function', 'user function'), name FROM system.functions
WHERE lower(name) IN {names:Array(String)}
UNION ALL
SELECT 'function', name FROM system.table_functions WHERE lower(name) IN {names:Array(String)}
UNION ALL
SELECT 'table', name FROM system.tables
WHERE database = currentDatabase() AND lower(name) IN {names:Array(String)}
UNION ALL
SELECT 'column', name FROM system.columns
WHERE database = currentDatabase() AND table IN {tables:Array(String)}
UNION ALL
SELECT 'database', name FROM system.databases WHERE name != currentDatabase()
UNION ALL
SELECT 'keyword', arrayJoin(splitByChar(' ', keyword)) FROM system.keywords
UNION ALL
SELECT 'own database', name FROM system.databases
WHERE name = currentDatabase() AND engine IN {engines:Array(String)}
"""
_COLUMNS: Final = compose("""
SELECT table, name, type FROM system.columns
WHERE database = currentDatabase() AND table IN {tables:Array(String)} ORDER BY table, position
{short_settings}
""")
_ENGINES: Final = ("Atomic", "Ordinary", "Replicated", "Shared")
"""Engines of databases whose tables are listed. Other engines find files or remote tables by any name."""
_HIDDEN_DATABASES: Final = frozenset(
    {"system", "information_schema", "default", "_temporary_and_external_tables"}
)


class Catalog(NamedTuple):
    """Objects of the engine with the names of a statement. Names are in lower case, except the database's."""

    keywords: frozenset[str]
    reserved: frozenset[str]
    """Names of tables, databases and functions that are not allowed. A column may have a function's name."""
    user_functions: frozenset[str]
    """Functions that an administrator of the server defined, perhaps under the name of an allowed one."""
    database: str
    """Our own database, whose name may precede that of an allowed table."""
    extras: allowed.Extras = allowed.NO_EXTRAS

    def allows(self, function: str) -> bool:
        """Return whether a call of this function is allowed. The case of its name does not matter."""
        return allowed.is_allowed_function(function) or function.lower() in self.extras.functions


def columns_by_table(store: Store) -> Iterator[bytes]:
    """Yield a line for each column of the tables that a statement may read: table, name and type."""
    return store.lines(_COLUMNS, {"tables": sorted(allowed.TABLES)})


def read_catalog(
    connection: ReadOnlyConnection | Store, names: Iterable[str], extras: allowed.Extras = allowed.NO_EXTRAS
) -> Catalog:
    """Return the catalog for names in lower case. Raises `InvalidStatement` for an unusual database."""
    rows = connection.rows(
        _NAMES, {"names": sorted(set(names)), "tables": sorted(allowed.TABLES), "engines": list(_ENGINES)}
    )

    def named(kind: str) -> set[str]:
        return {str(name) for found, name in rows if found == kind}

    if not (own := named("own database")):
        raise InvalidStatement("the database of the store finds tables under any name; SQL is not available")
    # APPLY with the name of a column calls the function of that name, which the tree check refuses.
    columns = {name.partition(".")[0].lower() for name in named("column")}
    functions = {name.lower() for name in named("function")}
    forbidden = {name for name in functions if not allowed.is_allowed_function(name)} - extras.functions
    reserved = (named("table") - allowed.TABLES) | named("database") | named("user function")
    return Catalog(
        keywords=frozenset(name.lower() for name in named("keyword")),
        reserved=frozenset(name.lower() for name in reserved)
        | (forbidden - columns - allowed.TABLE_FUNCTIONS)
        | (_HIDDEN_DATABASES - own),
        user_functions=frozenset(name.lower() for name in named("user function")),
        database=own.pop(),
        extras=extras,
    )
