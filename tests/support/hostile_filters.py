"""Texts that attack a query, and a store that keeps statements instead of running them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from receiver.engine.cluster import ONE_SERVER
from receiver.engine.store import Parameters, Store

HOSTILE = (
    "' OR 1=1 --",
    "') OR 1=1 SETTINGS readonly=0 --",
    "1) UNION ALL SELECT file('/etc/passwd') --",
    "x'; DROP TABLE otel_traces; SELECT '",
    "\\' OR 1=1 --",
    "{filter_0:String}",
    "{from_ns:Identifier}",
    "{table}{settings}",
    "%s%(x)s{}",
    "`TraceId`",
    "/* */ FORMAT Null",
    "\x1b]0;title\x07\x1b[2J",
    "\u202eabc\n\t\r",
)


class RecordingStore:
    """Store that keeps its statements. It runs them on another store, or returns nothing."""

    definition_version = None

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self.layout = ONE_SERVER if store is None else store.layout
        self.embedded = store is None or store.embedded
        self.receiver = "another"
        self.statements: list[str] = []
        self.parameters: list[object] = []

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        self._record(statement, parameters)
        if self._store is not None:
            return self._store.rows(statement, parameters)
        return [(0, 0, 0)] if "SELECT count()" in statement else []

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        self._record(statement, parameters)
        return iter(()) if self._store is None else self._store.lines(statement, parameters)

    def _record(self, statement: str, parameters: object) -> None:
        self.statements.append(statement)
        self.parameters.append(parameters)
