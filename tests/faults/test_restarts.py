"""The ClickHouse server's process is killed in the middle of an INSERT."""

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
from tests.faults.proxy import Exchange, Proxy
from tests.faults.writer_harness import WriterHarness
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker
from tests.support.server_process import clickhouse_server

KILL_DELAYS_S = (0.0, 0.02, 0.1)
"""Time between the INSERT and the kill."""


@pytest.mark.fault("the ClickHouse server is killed in the middle of an INSERT and restarted, several times")
def test_server_killed_during_inserts_stores_every_row_once(maker: SegmentMaker, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(clickhouse_server(tmp_path / "server"))
        proxy = stack.enter_context(Proxy(("127.0.0.1", server.port)))
        store = engines.connected(f"http://default@127.0.0.1:{proxy.port}", database="otel")
        stack.callback(store.close)
        schema.apply(store, schema_sources(), 30)
        harness = WriterHarness(store, store, proxy, maker, tmp_path)
        delays_s = iter(KILL_DELAYS_S)

        def kill_and_restart(exchange: Exchange) -> None:
            nonlocal server
            threading.Thread(target=forward, args=(exchange,), daemon=True).start()
            time.sleep(next(delays_s))
            os.kill(server.pid, signal.SIGKILL)
            server = stack.enter_context(clickhouse_server(tmp_path / "server"))
            proxy.upstream = ("127.0.0.1", server.port)
            exchange.reset()

        for _ in KILL_DELAYS_S:
            harness.add_segment(0, 1, 2)
        proxy.inject(kill_and_restart, times=len(KILL_DELAYS_S))
        harness.drain_journal()

        harness.assert_stored_once()


def forward(exchange: Exchange) -> None:
    """Send the request to a server that will not answer."""
    with suppress(OSError, http.client.HTTPException):
        exchange.forward()
