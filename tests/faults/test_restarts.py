"""The server's own process dies in the middle of an INSERT: not the network, the engine."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from receiver.engine import schema
from tests.faults.desk import Desk
from tests.faults.proxy import Exchange, Proxy
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker
from tests.support.server_process import clickhouse_server

DEATHS_S = (0.0, 0.02, 0.1)
"""After the INSERT was sent."""


@pytest.mark.fault(
    "the server's process is killed in the middle of an INSERT and started again, several times"
)
def test_a_server_killed_while_it_inserts_gets_every_row_once(maker: SegmentMaker, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(clickhouse_server(tmp_path / "server"))
        proxy = stack.enter_context(Proxy(("127.0.0.1", server.port)))
        store = engines.connected(f"http://default@127.0.0.1:{proxy.port}", database="otel")
        stack.callback(store.close)
        schema.apply(store, schema_sources(), 30)
        desk = Desk(store, store, proxy, maker, tmp_path)
        deaths_s = iter(DEATHS_S)

        def killed(exchange: Exchange) -> None:
            nonlocal server
            threading.Thread(target=forward, args=(exchange,), daemon=True).start()
            time.sleep(next(deaths_s))
            os.kill(server.pid, signal.SIGKILL)
            server = stack.enter_context(clickhouse_server(tmp_path / "server"))
            proxy.upstream = ("127.0.0.1", server.port)
            exchange.reset()

        for _ in DEATHS_S:
            desk.file(0, 1, 2)
        proxy.meet(killed, times=len(DEATHS_S))
        desk.carry()

        desk.assert_stored_once()


def forward(exchange: Exchange) -> None:
    """Send it to a server that will not answer."""
    with suppress(OSError, http.client.HTTPException):
        exchange.forward()
