"""Child process of `test_sql_memory`: two SQL statements that need all memory of the store, beside INSERTs.

Prints one JSON object: the error codes of the statements, and how many INSERTs were stored and failed.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from receiver.console.queries.raw_sql.statement import parse_sql, sql
from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.errors import StoreTrouble
from receiver.settings import MIB, Settings
from tests.support.fake_clickhouse import schema_sources

MEMORY_BYTES_MAX = 768 * MIB
"""Of the store. Each statement may use 2 GiB, so the memory of the store ends first."""
HUNGRY = "SELECT length(groupArray(concat(toString(number), repeat('y', 200)))) FROM numbers(100000000)"


def code_of_hungry_statement(store: EmbeddedStore) -> int | None:
    """Run a statement until it fails, and return the code of its error."""
    try:
        list(sql(store, parse_sql({"query": HUNGRY})).pieces())
    except StoreTrouble as trouble:
        return trouble.code
    return None


def insert_until(store: EmbeddedStore, ended: threading.Event) -> dict[str, int]:
    """Insert as the writer does, again after an error. Return how many INSERTs succeeded and failed."""
    counts = {"stored": 0, "failed": 0}
    while not ended.is_set() or not counts["stored"]:
        try:
            store.probe()
            counts["stored"] += 1
        except StoreTrouble:
            counts["failed"] += 1
    return counts


def main(directory: Path) -> None:
    """Run both statements and the INSERTs at once."""
    store = EmbeddedStore(
        directory, database="otel", memory_bytes_max=MEMORY_BYTES_MAX, disk_free_min=lambda: 1
    )
    schema.apply(store, schema_sources(), *schema.wanted(Settings()))
    ended = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        inserts = pool.submit(insert_until, store, ended)
        statements = [pool.submit(code_of_hungry_statement, store) for _ in range(2)]
        codes = [statement.result() for statement in statements]
        ended.set()
        counts = inserts.result()
    store.probe()
    store.close()
    sys.stdout.write(json.dumps({"codes": codes, **counts}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
