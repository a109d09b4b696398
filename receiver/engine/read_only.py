"""Connection for untrusted statements, over a client of either store. See `ReadOnlyConnection`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clickhouse_connect.driver.client import Client

from receiver.engine.pieces import complete_lines, complete_parquet, pieces_of
from receiver.engine.store import Parameters


class ReadOnlyClient:
    """A client whose statements all run with the same settings."""

    def __init__(self, client: Client, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: sent with each statement, unless the client has them already."""
        self._client = client
        self._settings = dict(settings or {})

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """See `ReadOnlyConnection`."""
        result = self._client.query(statement, parameters=dict(parameters or {}), settings=self._settings)
        return [tuple(row) for row in result.result_rows]

    def lines(self, statement: str) -> Iterator[bytes]:
        """See `ReadOnlyConnection`."""
        yield from complete_lines(pieces_of(self._client, statement, None, self._settings, "JSONEachRow"))

    def parquet(self, statement: str) -> Iterator[bytes]:
        """See `ReadOnlyConnection`."""
        yield from complete_parquet(pieces_of(self._client, statement, None, self._settings, "Parquet"))
