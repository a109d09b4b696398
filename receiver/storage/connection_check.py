"""Looks at a ClickHouse server as `config check --connect` does: login, version, database, tables, rights.

Never: a change on the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from clickhouse_connect.driver.binding import quote_identifier

from receiver.config.addresses import Address, StoreUrl
from receiver.errors import StoreTrouble
from receiver.settings import Settings
from receiver.storage import schema
from receiver.storage.clickhouse import ClickHouseStore
from receiver.storage.schema import VERSION_MIN
from receiver.storage.store import Store

SYSTEM = "system"
"""The database that every server has: connecting to it does not ask for the receiver's own."""
RIGHTS = ("SELECT", "INSERT", "CREATE TABLE", "CREATE VIEW", "DROP TABLE", "ALTER")
"""What the receiver needs on its database: it makes, alters and reads tables, and drops trial tables."""
RIGHTS_OF_NEW_DATABASE = (*RIGHTS, "CREATE DATABASE")
NO_CHECK_GRANT = 62
"""SYNTAX_ERROR: a server that is too old to check rights."""


class Seen(NamedTuple):
    """One thing that was looked at."""

    text: str
    is_fine: bool = True


def inspect_server(settings: Settings, url: StoreUrl, sources: list[tuple[str, str]]) -> Iterator[Seen]:
    """Yield what was found, in the order in which the receiver needs it; the first trouble ends it."""
    database = url.database or settings.store.database
    store, beside = (_store_at(settings, replace(url, database=name)) for name in (database, SYSTEM))
    try:
        yield from _login_and_version(beside, url)
        exists = bool(
            beside.rows("SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": database})
        )
        yield Seen(_database_text(database, exists=exists))
        yield from _rights(beside, database, exists=exists)
        if exists:
            yield from _tables(store, settings, sources)
    except StoreTrouble as trouble:
        hint = (
            ""
            if trouble.advice or trouble.code
            else "; expected ClickHouse's HTTP interface there (store.url)"
        )
        yield Seen(f"the store: {trouble.label}{hint}", is_fine=False)
    finally:
        store.close()
        beside.close()


def _store_at(settings: Settings, url: StoreUrl) -> ClickHouseStore:
    return ClickHouseStore(
        url,
        database="",
        password=settings.store.password,
        insert_timeout_s=settings.store.insert_timeout_s,
        receiver="check",
    )


def _login_and_version(store: Store, url: StoreUrl) -> Iterator[Seen]:
    version = store.version()
    at = f"ClickHouse {version} at {Address(url.host, url.port)} takes user '{url.user or 'default'}'"
    expected = "" if version >= VERSION_MIN else f"; expected version {VERSION_MIN} or newer"
    yield Seen(f"{at}{expected}", is_fine=not expected)


def _database_text(database: str, *, exists: bool) -> str:
    return (
        f"database '{database}' exists" if exists else f"database '{database}' is missing; `serve` creates it"
    )


def _rights(store: Store, database: str, *, exists: bool) -> Iterator[Seen]:
    """Ask for each right on its own, so that the missing ones can be named."""
    rights = RIGHTS if exists else RIGHTS_OF_NEW_DATABASE
    try:
        missing = [right for right in rights if not _has(store, right, database)]
    except StoreTrouble as trouble:
        if trouble.code != NO_CHECK_GRANT:
            raise
        yield Seen("rights were not checked: this version of ClickHouse has no CHECK GRANT")
        return
    if missing:
        yield Seen(f"the user lacks rights on database '{database}': {', '.join(missing)}", is_fine=False)
    else:
        yield Seen(f"the user has the rights that the receiver needs: {', '.join(rights)}")


def _has(store: Store, right: str, database: str) -> bool:
    """Ask for one right. No parameter can name a database here."""
    return bool(store.rows(f"CHECK GRANT {right} ON {quote_identifier(database)}.*")[0][0])


def _tables(store: Store, settings: Settings, sources: list[tuple[str, str]]) -> Iterator[Seen]:
    found = schema.status(store, sources, settings.store.retention_days)
    if found.foreign:
        yield Seen(f"{found.foreign}; `trace-drain schema apply` prints how to adopt it", is_fine=False)
    elif found.missing:
        yield Seen(f"{len(found.missing)} of the schema's statements are not applied; `serve` applies them")
    else:
        yield Seen("the tables are up to date")
