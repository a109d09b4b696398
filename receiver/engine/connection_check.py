"""Checks of `config check --connect`: login, version, database, rights and tables of a ClickHouse server.

Never: changes the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from receiver.config.addresses import Address, StoreUrl
from receiver.engine import schema
from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.driver_internals import quote_identifier
from receiver.engine.schema import VERSION_MIN
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.reports import Finding
from receiver.settings import Settings

SYSTEM = "system"
"""Database of every server. Connecting to it works before the receiver's own database exists."""
RIGHTS = ("SELECT", "INSERT", "CREATE TABLE", "CREATE VIEW", "DROP TABLE", "ALTER")
"""Rights on the database: the receiver creates, alters and reads tables, and drops trial tables."""
RIGHTS_OF_NEW_DATABASE = (*RIGHTS, "CREATE DATABASE")
NO_CHECK_GRANT = 62
"""SYNTAX_ERROR: the server is too old for CHECK GRANT."""


def inspect_server(settings: Settings, url: StoreUrl, sources: list[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the result of each check, most basic first, until the first error."""
    database = url.database or settings.store.database
    # Two clients: one that names a missing database could not even log in.
    store, system_store = (_store_at(settings, replace(url, database=name)) for name in (database, SYSTEM))
    try:
        yield from _login_and_version(system_store, url)
        exists = bool(
            system_store.rows("SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": database})
        )
        yield Finding("note", _database_text(database, exists=exists))
        yield from _rights(system_store, database, exists=exists)
        # Without the database, a query of its tables would fail.
        if exists:
            yield from _tables(store, settings, sources)
    except StoreTrouble as trouble:
        # Without code and advice the answer was not understood, so the port is the most likely mistake.
        hint = (
            ""
            if trouble.advice or trouble.code
            else "; expected ClickHouse's HTTP interface there (store.url)"
        )
        yield Finding("problem", f"the store: {trouble.label}{hint}")
    finally:
        store.close()
        system_store.close()


def _store_at(settings: Settings, url: StoreUrl) -> ClickHouseStore:
    return ClickHouseStore(
        url,
        database="",
        password=settings.store.password,
        insert_timeout_s=settings.store.insert_timeout_s,
        receiver="check",
    )


def _login_and_version(store: Store, url: StoreUrl) -> Iterator[Finding]:
    version = store.version()
    server = f"ClickHouse {version} at {Address(url.host, url.port)} accepts user '{url.user or 'default'}'"
    expected = "" if version >= VERSION_MIN else f"; expected version {VERSION_MIN} or newer"
    yield Finding("problem" if expected else "note", f"{server}{expected}")


def _database_text(database: str, *, exists: bool) -> str:
    return (
        f"database '{database}' exists" if exists else f"database '{database}' is missing; `serve` creates it"
    )


def _rights(store: Store, database: str, *, exists: bool) -> Iterator[Finding]:
    """Check each right separately, so that the message can list the missing rights."""
    rights = RIGHTS if exists else RIGHTS_OF_NEW_DATABASE
    try:
        missing = [right for right in rights if not _has(store, right, database)]
    except StoreTrouble as trouble:
        if trouble.code != NO_CHECK_GRANT:
            raise
        yield Finding("note", "rights were not checked: this version of ClickHouse has no CHECK GRANT")
        return
    if missing:
        yield Finding("problem", f"the user lacks rights on database '{database}': {', '.join(missing)}")
    else:
        yield Finding("note", f"the user has the rights that the receiver needs: {', '.join(rights)}")


def _has(store: Store, right: str, database: str) -> bool:
    """Return whether the user has the right. The statement cannot take the database as a parameter."""
    return bool(store.rows(f"CHECK GRANT {right} ON {quote_identifier(database)}.*")[0][0])


def _tables(store: Store, settings: Settings, sources: list[tuple[str, str]]) -> Iterator[Finding]:
    status = schema.status(store, sources, *schema.wanted(settings), layout=schema.layout_of(settings))
    if status.unusable:
        yield Finding("problem", f"{status.unusable}; `trace-drain schema apply` prints what to do")
    elif status.missing:
        count = len(status.missing)
        yield Finding("note", f"{count} of the schema's statements are not applied; `serve` applies them")
    else:
        yield Finding("note", "the tables are up to date")
