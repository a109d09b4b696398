"""Connection for untrusted statements, over a client of either store. See `ReadOnlyConnection`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clickhouse_connect.driver.client import Client

from receiver.engine.driver_internals import escaped_already
from receiver.engine.pieces import complete_lines, complete_parquet, pieces_of
from receiver.engine.store import Parameters


class ReadOnlyClient:
    """A client whose statements all run with the same settings."""

    def __init__(self, client: Client, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: sent with each statement, unless the client has them already."""
        self._client = client
        self._settings = dict(settings or {})

    def rows(
        self, statement: str, parameters: Parameters | None = None, texts: Mapping[str, str] | None = None
    ) -> list[tuple[Any, ...]]:
        """See `ReadOnlyConnection`."""
        bound = {**(parameters or {}), **escaped_already(texts or {})}
        result = self._client.query(statement, parameters=bound, settings=self._settings)
        return [tuple(row) for row in result.result_rows]

    def lines(self, statement: str) -> Iterator[bytes]:
        """See `ReadOnlyConnection`."""
        yield from complete_lines(pieces_of(self._client, statement, None, self._settings, "JSONEachRow"))

    def parquet(self, statement: str) -> Iterator[bytes]:
        """See `ReadOnlyConnection`."""
        yield from complete_parquet(pieces_of(self._client, statement, None, self._settings, "Parquet"))

    def whole(self, statement: str, form: str, texts: Mapping[str, str]) -> bytes:
        """See `ReadOnlyConnection`."""
        return self._client.raw_query(statement, escaped_already(texts), settings=self._settings, fmt=form)

    def pieces(self, statement: str, form: str, texts: Mapping[str, str]) -> Iterator[bytes]:
        """See `ReadOnlyConnection`."""
        yield from pieces_of(self._client, statement, escaped_already(texts), self._settings, form)
