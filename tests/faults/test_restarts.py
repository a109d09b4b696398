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

from receiver.storage import schema
from tests import engines
from tests.faults.desk import Desk
from tests.faults.proxy import Exchange, Proxy
from tests.segments import Press
from tests.server_process import clickhouse_server
from tests.storehouse import schema_sources

DEATHS_S = (0.0, 0.02, 0.1)
"""After the INSERT was sent."""


@pytest.mark.fault(
    "the server's process is killed in the middle of an INSERT and started again, several times"
)
def test_a_server_killed_while_it_inserts_gets_every_row_once(press: Press, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(clickhouse_server(tmp_path / "server"))
        proxy = stack.enter_context(Proxy(("127.0.0.1", server.port)))
        store = engines.connected(f"http://default@127.0.0.1:{proxy.port}", database="otel")
        stack.callback(store.close)
        schema.apply(store, schema_sources(), 30)
        desk = Desk(store, store, proxy, press, tmp_path)
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
