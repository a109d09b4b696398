"""The embedded store is moved to a server while deliveries arrive, and the ledger agrees afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.e2e.receiver_process import RETRYABLE, ReceiverProcess, environment
from tests.support import engines
from tests.support.server_process import Server

DAYS = 3


def body_of(number: int) -> bytes:
    spans = [
        {
            "traceId": f"{number + 1:032x}",
            "spanId": f"{span + 1:016x}",
            "name": "GET",
            "startTimeUnixNano": str(time.time_ns() - number % DAYS * 86_400 * 10**9),
            "attributes": [{"key": "number", "value": {"intValue": number}}],
        }
        for span in range(5)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


class Sender(threading.Thread):
    """Sends a delivery after the other, each until it is acknowledged, to the receiver that runs."""

    def __init__(self, running: ReceiverProcess) -> None:
        super().__init__(daemon=True)
        self.running = running
        self.acknowledged = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            body = body_of(self.acknowledged)
            while not self._is_acknowledged(body):
                time.sleep(0.05)
            self.acknowledged += 1

    def _is_acknowledged(self, body: bytes) -> bool:
        try:
            status = self.running.post(body).status
        except (OSError, ValueError, KeyError):
            return False
        assert status == 200 or status in RETRYABLE, status
        return status == 200


@contextmanager
def sending(running: ReceiverProcess) -> Iterator[Sender]:
    sender = Sender(running)
    sender.start()
    try:
        yield sender
    finally:
        sender.is_over.set()
        sender.join()


def kill_a_move_during_an_insert(receiver: ReceiverProcess, url: str, server: Server, store: Store) -> None:
    server.inject_fault("slow", seconds=600.0)
    command = ["store", "move", "--to", url, "--data", str(receiver.data)]
    with subprocess.Popen([sys.executable, "-m", "receiver.cli", *command], env=environment()) as process:
        receiver.wait_until(lambda: is_inserting(store), "the move sends no INSERT")
        process.kill()
    assert is_inserting(store)


def is_inserting(store: Store) -> bool:
    try:
        return bool(store.running("trace-drain-move"))
    # The database does not exist yet.
    except StoreTrouble:
        return False


@pytest.mark.fault(
    "the embedded store is moved to a server under load: the move is killed in an INSERT, then the receiver"
)
def test_store_is_moved_while_deliveries_arrive_and_the_move_is_killed(
    tmp_path: Path, server: Server
) -> None:
    database = f"moved_{uuid4().hex}"
    url = f"http://default@127.0.0.1:{server.port}/{database}"
    store = engines.connected(url, database=database)
    receiver = ReceiverProcess(tmp_path)
    with receiver, sending(receiver) as sender:
        receiver.wait_until(lambda: sender.acknowledged > 100, "deliveries are not acknowledged")
        kill_a_move_during_an_insert(receiver, url, server, store)
        first = receiver.command("store", "move", "--to", url)
        # Harder than a stop: segments are in the journal that the embedded store has.
        receiver.kill()
        receiver.flags += ["--store", url]
        receiver.start()
        sent = sender.acknowledged
        receiver.wait_until(lambda: sender.acknowledged > sent + 20, "deliveries are not acknowledged")
        sender.is_over.set()
        sender.join()
        receiver.wait_until_stored()
        second = receiver.command("store", "move", "--to", url)
        verified = receiver.command("ledger", "--verify")
        third = receiver.command("store", "move", "--to", url)

    assert f'now set store.url = "{url}", restart the receiver, and run the command again' in first
    assert f"if the receiver's store.url is {url}, '{tmp_path / 'store'}' may be deleted" in second
    assert third.startswith("0 spans copied; ")
    assert "with the table" in verified
    counts = store.rows("SELECT count(), uniqExact(TraceId, SpanId) FROM otel_traces")
    assert counts == [(5 * sender.acknowledged, 5 * sender.acknowledged)]
    store.close()
