"""Store on a ClickHouse server, over HTTP. The segment file is the request body, without re-encoding.

Invariant: each call sends an INSERT once. Anything but a 200 with an empty body (an exception in a header,
text in the body, a lost connection) raises `StoreTrouble`, and the outcome of the INSERT is unknown.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import IO, Any, ClassVar

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3 import BaseHTTPResponse, Timeout

from receiver.config.addresses import Address, StoreUrl
from receiver.engine.advice import Login, advice_on
from receiver.engine.cluster import ONE_SERVER, Layout
from receiver.engine.copying import Pieces, Read, named_pieces, pieces_of
from receiver.engine.driver_errors import trouble_of
from receiver.engine.driver_internals import (
    pool_without_redirects,
    post,
    quote_identifier,
    supported_settings,
)
from receiver.engine.pieces import ReadOnlyClient
from receiver.engine.sql import CODEC_OF, SqlStore, pins
from receiver.engine.sql_text import Sql, identifier
from receiver.engine.store import TABLE, Parameters
from receiver.errors import StoreTrouble

CONNECT_TIMEOUT_S = 5
QUERY_TIMEOUT_S = 60
_TEXT_CHARS_MAX = 2_000

_CODE = re.compile(r"Code: (\d+)\.")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]*)\) \(version ")


# They log every exception that they raise. We log these exceptions ourselves, rate-limited.
for _library in ("urllib3", "clickhouse_connect"):
    logging.getLogger(_library).setLevel(logging.CRITICAL)


class ClickHouseStore(SqlStore):
    """Store on a ClickHouse server. Clients connect on first use, because the server may be down at start."""

    embedded = False
    layout: Layout = ONE_SERVER
    receiver = ""
    _insert_settings: ClassVar[Mapping[str, str]] = {}
    _running_id = Sql("query_id")

    def __init__(  # noqa: PLR0913 - the settings of a connection
        self,
        url: StoreUrl,
        *,
        database: str,
        password: str,
        insert_timeout_s: int,
        receiver: str,
        cluster: str = "",
    ) -> None:
        """`database` and `password` are used if the URL does not contain them."""
        super().__init__(receiver=receiver)
        self.receiver = receiver
        self._cluster = cluster
        self.layout = Layout(cluster, url.database or database)
        self._url = url
        self._place = str(Address(url.host, url.port))
        self._pool = pool_without_redirects(url.host, url.port, is_secure=url.secure)
        self._database = url.database or database
        self._password = url.password or password
        self._login = Login(url.user or "default", self._password)
        self._insert_timeout_s = insert_timeout_s

    @property
    def definition_version(self) -> None:
        """See `Store`."""

    def _open(self) -> Client:
        return self._connect(self._database)

    def _connect(self, database: str | None) -> Client:
        return clickhouse_connect.get_client(
            interface="https" if self._url.secure else "http",
            host=self._url.host,
            port=self._url.port,
            username=self._url.user or "default",
            password=self._password,
            database=database,
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=QUERY_TIMEOUT_S,
            # A statement whose answer was lost would keep a session locked.
            autogenerate_session_id=False,
            client_name="trace-drain",
            # Full error texts can contain values of rows.
            show_clickhouse_errors="scrub",
            pool_mgr=self._pool,
        )

    def create_database(self) -> None:
        self._create_database()

    def _create_database(self, on_cluster: str = "") -> None:
        try:
            client = self._connect(None)
            client.command(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(self._database)}{on_cluster}")
        except ClickHouseError as error:
            raise trouble_of(error, self._place, self._login) from error

    def _insert_file(self, table: str, segment: Path, query_id: str, settings: Mapping[str, str]) -> int:
        with segment.open("rb") as body:
            headers = {
                "Content-Encoding": CODEC_OF[segment.suffix],
                # With a length, the server detects an upload that was cut short.
                "Content-Length": str(segment.stat().st_size),
            }
            parameters = {"query": f"INSERT INTO {table} FORMAT Native", "query_id": query_id, **settings}
            return self._insert_body(parameters, body, headers)

    def insert_lines(self, table: str, lines: bytes, *, token: str) -> None:
        parameters = {"query": f"INSERT INTO {table} FORMAT JSONEachRow", "insert_deduplication_token": token}
        self._insert_body(parameters, BytesIO(lines), {"Content-Length": str(len(lines))})

    def insert_arrow(self, table: str, body: IO[bytes], *, token: str, query_id: str) -> int:
        """Insert an Arrow stream in one statement. Returns the rows that the server read.

        After any `StoreTrouble` the outcome of the INSERT is unknown.
        """
        self._column_check.run()
        parameters = {
            "query": f"INSERT INTO {table} FORMAT ArrowStream",
            "query_id": query_id,
            "insert_deduplication_token": token,
        }
        size_bytes = body.seek(0, os.SEEK_END)
        body.seek(0)
        return self._insert_body(parameters, body, {"Content-Length": str(size_bytes)})

    def pieces(self, read: Read) -> Pieces:
        """Return the rows of segments by shard. `read`: of segments."""
        return named_pieces(self._piece_sums(read.parameters()))

    def _piece_sums(self, parameters: Parameters) -> list[Any]:
        return self._rows_of_array(pieces_of(identifier(TABLE)), parameters)

    def _insert_body(self, parameters: Mapping[str, str], body: IO[bytes], headers: Mapping[str, str]) -> int:
        """Send an INSERT with its rows. Returns the number of rows that the server read."""
        with self._client() as client:
            answer = post(
                client,
                {
                    **pins(client),
                    **self._insert_settings,
                    "database": self._database,
                    # Without this, the server may send 200 before it has executed the INSERT.
                    "wait_end_of_query": "1",
                    **parameters,
                },
                body,
                {**headers, "Content-Type": "application/octet-stream"},
                Timeout(connect=CONNECT_TIMEOUT_S, read=self._insert_timeout_s),
            )
            return _read_rows(answer, self._place, self._login)

    @contextmanager
    def read_only(self, settings: Mapping[str, str]) -> Iterator[ReadOnlyClient]:
        """See `Store`. Each request has the settings, because HTTP requests share no state."""
        with self._client() as client:
            supported = supported_settings(client, settings)
            yield ReadOnlyClient(client, {**supported, **self._mark_settings(), "readonly": "1"})

    def close(self) -> None:
        super().close()
        self._pool.clear()

    def _forget_client(self) -> None:
        """See `SqlStore`. Keeps the client, because HTTP requests share no state."""

    def inspect(self) -> None:
        """See `Store`. Nothing to do: a server checks its own disk."""

    def sync(self) -> None:
        """See `Store`. Nothing to do: a server's fsync settings decide; `schema status` shows them."""


def _read_rows(answer: BaseHTTPResponse, place: str, login: Login) -> int:
    """Return the number of rows that the server read. Raises `StoreTrouble` except for an empty 200."""
    code = answer.headers.get("X-ClickHouse-Exception-Code")
    text = answer.data.decode(errors="replace").strip()
    # A failure after the head was sent arrives as text in the body of a 200.
    if answer.status != HTTPStatus.OK or code or text:
        error_code = int(code) if code and code.isdigit() else _code_in(text)
        status = None if answer.status == HTTPStatus.OK else answer.status
        raise StoreTrouble(
            f"the server answered {answer.status}: {text[:_TEXT_CHARS_MAX]}",
            code=error_code,
            name=_name_in(text),
            status=status,
            place=place,
            advice=advice_on(error_code, _name_in(text), status, text[:_TEXT_CHARS_MAX], login),
        )
    return int(json.loads(answer.headers.get("X-ClickHouse-Summary", "{}")).get("read_rows", 0))


def _code_in(text: str) -> int | None:
    """Return the last code in the text, as in `Code: 252. DB::Exception: …`."""
    codes = _CODE.findall(text)
    return int(codes[-1]) if codes else None


def _name_in(text: str) -> str:
    """Return the name of the error code, which follows the message: `… (TOO_MANY_PARTS) (version …)`."""
    names = _NAME.findall(text.rpartition("Code: ")[2]) if _CODE.search(text) else []
    return str(names[-1]) if names else ""
