"""The undocumented parts of clickhouse-connect that the stores use.

clickhouse-connect may change them in any minor version, so pyproject.toml allows one minor version only, and
a test checks each name in this module.

Never: leaves an undocumented part of the driver to another module.
"""

from __future__ import annotations

from collections import UserString
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import IO, Any, cast
from urllib.parse import urlencode

from clickhouse_connect.driver.binding import quote_identifier
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.ctypes import RespBuffCls
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httpclient import HttpClient
from clickhouse_connect.driver.httputil import check_env_proxy, get_pool_manager
from clickhouse_connect.driver.query import QueryContext, QueryResult
from clickhouse_connect.driver.transform import NativeTransform
from urllib3 import BaseHTTPResponse, PoolManager, Timeout

__all__ = [
    "FOREIGN_STATUS_TEXT",
    "NO_VERSION_TEXT",
    "escaped_already",
    "pool_without_redirects",
    "post",
    "quote_identifier",
    "rows_of_native",
    "supported_settings",
]

FOREIGN_STATUS_TEXT = "HTTP driver received HTTP status "
"""Start of the driver's error for an answer that did not come from ClickHouse; the status follows."""
NO_VERSION_TEXT = "Unexpected response to server version query"
"""Start of the driver's error for a 200 response of a server that is not ClickHouse."""


def supported_settings(client: Client, settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of the settings that the client's engine supports."""
    return {name: settings[name] for name in settings if name in client.server_settings}


def escaped_already(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return values of query parameters that the driver binds as they are.

    The driver escapes texts, but binds what `str` returns for objects of a type that it does not know.
    """
    return {name: UserString(texts[name]) for name in texts}


def pool_without_redirects(host: str, port: int, *, is_secure: bool) -> PoolManager:
    """Return a connection pool like the driver's default, with the same proxies, that follows no redirect.

    A redirect is an error: rows and credentials for this server must not be sent to another.
    """
    https_proxy = check_env_proxy("https", host, port) if is_secure else None
    http_proxy = None if https_proxy else check_env_proxy("http", host, port)
    pool: PoolManager = get_pool_manager(http_proxy=http_proxy, https_proxy=https_proxy)
    pool.urlopen = partial(pool.urlopen, redirect=False)  # type: ignore[method-assign]
    return pool


def post(
    client: Client,
    parameters: Mapping[str, str],
    body: IO[bytes],
    headers: Mapping[str, str],
    timeout: Timeout,
) -> BaseHTTPResponse:
    """Send one POST with the client's own address, login and parameters. Never sends it again."""
    http = cast("HttpClient", client)
    return http.http.request(
        "POST",
        f"{http.url}/?{urlencode({**http.params, **parameters})}",
        body=body,
        headers={**http.headers, **headers},
        timeout=timeout,
        retries=False,
    )


def rows_of_native(block: bytes) -> list[dict[str, Any]]:
    """Return the rows of a block in the Native format by column, without an engine. Raises `ValueError`."""
    # Texts of senders need not be UTF-8 in a fixed length; the driver then returns their digits.
    context = QueryContext(query_formats={"FixedString": "string"})
    source = RespBuffCls(SimpleNamespace(gen=iter([block]), close=lambda: None))  # type: ignore[no-untyped-call]  # has no types
    try:
        result = cast("QueryResult", NativeTransform.parse_response(source, context))
        return [dict(row) for row in result.named_results()]
    except ClickHouseError as error:
        raise ValueError("the block is not in the Native format") from error
