"""The API over a store, in this process, and stores whose queries fail or wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api.query_queue import QUERIES_MAX
from receiver.console.api.route import Routes
from receiver.console.api.routes import Api
from receiver.console.api.source import ApiSourceFor
from receiver.console.api.spool import SpoolSpace
from receiver.engine.store import Parameters, ReadOnlyConnection
from receiver.errors import StoreTrouble
from tests.support.fake_clickhouse import MemoryStore

Client = TestClient[Any, Any]
WAIT_S = 60.0


@contextmanager
def api_over(store: Any, **parts: Any) -> Iterator[Api]:  # noqa: ANN401 - also doubles; fields of `Api`
    """Yield the API without a token. Its answers are buffered in memory only."""
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:
        defaults = {
            "token": str,
            "health": dict,
            "schema": dict,
            "ledger": dict,
            "snapshot": dict,
            "deletion_report": dict,
            "delete": dict,
            "pool": pool,
            "stream_pool": stream_pool,
            "space": SpoolSpace(Path(), 0, lambda: 0),
        }
        yield Api(store, **{**defaults, **parts})


@asynccontextmanager
async def client_of(
    store: Any,  # noqa: ANN401 - also doubles
    *groups: Callable[[ApiSourceFor], Routes],
    options: Mapping[str, Any] | None = None,
    **parts: Any,  # noqa: ANN401 - fields of `Api`
) -> AsyncIterator[Client]:
    """Yield a client of the API with more groups of routes. `options`: of the client."""
    with api_over(store, **parts) as api:
        application = api.application(*(group(api.source) for group in groups))
        async with TestClient(TestServer(application), **(options or {})) as client:
            yield client


class FailingStore(MemoryStore):
    """Store whose queries fail."""

    def __init__(self, code: int, name: str = "ERROR") -> None:
        super().__init__()
        self._error = StoreTrouble("value 'secret of a row' cannot be read", code=code, name=name)

    def rows(self, _statement: str, _parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        raise self._error

    def lines(self, _statement: str, _parameters: Parameters | None = None) -> Iterator[bytes]:
        raise self._error


class WaitingStore(MemoryStore):
    """Store whose queries of whole spans return some lines, wait for `release`, and return a last line."""

    def __init__(self, *lines: bytes) -> None:
        super().__init__()
        self.release = Event()
        self._lines = lines

    def lines(self, statement: str, _parameters: Parameters | None = None) -> Iterator[bytes]:
        if "SELECT *" in statement:
            yield from self._lines
            self.release.wait(WAIT_S)
        yield b'{"a":1}\n'


class HangingStore(MemoryStore):
    """Store whose SQL statements do not end before `release`, even if they are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.release = Event()
        self.cancelled = Event()
        self.started = 0

    def cancel(self, _mark: str) -> None:
        self.cancelled.set()

    @contextmanager
    def read_only(self, _settings: Mapping[str, str]) -> Iterator[ReadOnlyConnection]:
        self.started += 1
        self.release.wait(WAIT_S)
        raise StoreTrouble("cancelled", code=394, name="QUERY_WAS_CANCELLED")
        yield
