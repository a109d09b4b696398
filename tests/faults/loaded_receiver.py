"""A whole receiver in front of a failing server, with a sender that retries until it is acknowledged.

`assert_kept` checks what must hold after each fault. Senders get only 200, or 503 while the journal is full.
"""

from __future__ import annotations

import http.client
import itertools
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from receiver.engine.store import Store
from tests.e2e.receiver_process import PATIENCE_S, ReceiverProcess, reply_of
from tests.faults.proxy import Proxy
from tests.torture.checker import check
from tests.torture.oracle import DRAINS, LANES, Delivery, Oracle
from tests.torture.senders import SendCounts

SEGMENT_BYTES_MAX = 1 << 16
"""Small, so that a short outage leaves several segments."""
PAUSE_S = 0.1
"""Pause of a sender between two deliveries."""


class LoadedReceiver(ReceiverProcess):
    """A receiver, its sender, and the record of what the sender sent."""

    def __init__(
        self, data: Path, url: str, store: Store, proxy: Proxy, *, journal_bytes_max: int = 1 << 30
    ) -> None:
        config = f'[store]\nurl = "{url}"\nretention_days = 20000\ninsert_timeout_s = 2\n'
        config += f"\n[journal]\nsegment_bytes_max = {SEGMENT_BYTES_MAX}\nbytes_max = {journal_bytes_max}\n"
        config += f'\n[[drain]]\nname = "{DRAINS[0].name}"\n'
        super().__init__(data, config=config)
        self.proxy = proxy
        self.store = store
        """The database, not through the proxy."""
        self.sent: dict[int, SendCounts] = {}
        self.answers: Counter[int] = Counter()
        self._oracle = Oracle(seed=hash(data) & 0xFFFF)
        self._numbers = (number for number in itertools.count() if LANES[number % len(LANES)] is DRAINS[0])

    def deliver(self, count: int = 1) -> None:
        """Send the next deliveries, each until it is answered with 200."""
        for delivery in map(self._oracle.delivery, itertools.islice(self._numbers, count)):
            counts = self.sent.setdefault(delivery.number, SendCounts())
            while not counts.acknowledged:
                self._attempt(delivery, counts)

    def _attempt(self, delivery: Delivery, counts: SendCounts) -> None:
        counts.attempts += 1
        host, port = self.address
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        try:
            connection.request("POST", delivery.drain.path, delivery.body, delivery.headers)
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        self.answers[answer.status] += 1
        if answer.status == 200:
            counts.acknowledged += 1
        else:
            assert answer.status == 503
            time.sleep(0.2)

    @contextmanager
    def under_load(self, *, pause_s: float = PAUSE_S) -> Iterator[None]:
        """Send one delivery after another while the block runs."""
        ending = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                while not ending.wait(pause_s):
                    self.deliver()
            except BaseException as failure:  # noqa: BLE001 - raised below
                failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(PATIENCE_S)
        if failures:
            raise failures[0]

    def readiness(self) -> dict[str, str]:
        """Return the reason of each check of the store process, and the HTTP status as `ready`."""
        url = f"{self.state()['urls']['admin']}/readyz"
        reply = reply_of(urllib.request.Request(url, headers={"Accept": "application/json"}))
        checks = reply.json()["checks"]
        reasons = {check["name"]: check["reason"] for check in checks if check["process"] == "store"}
        return {**reasons, "ready": str(reply.status)}

    @property
    def trouble(self) -> str:
        """The store's problem, as `/readyz` reports it."""
        return self.readiness().get("store", "starting")

    def wait_for_trouble(self, text: str) -> None:
        """Wait until `/readyz` reports this problem; assert that intake is still ready."""
        self.wait_until(lambda: text in self.trouble, f"/readyz does not report '{text}'")
        assert self.readiness()["ready"] == "200"

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its labels; 0 if it was never exported."""
        lines = [line for line in self.metrics().splitlines() if line.startswith(f"trace_drain_{name}")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def assert_kept(self, *, settle_s: float = PATIENCE_S) -> None:
        """Assert that acknowledged spans are stored once and unchanged, and the receiver is healthy."""
        self.wait_until(
            lambda: not self.backlog() and not self.trouble,
            "the journal does not become empty",
            patience_s=settle_s,
        )
        findings = check(self.store, self._oracle, self.sent)
        assert not findings.violations, findings.examples
        assert all(counts.acknowledged for counts in self.sent.values())
        assert not list((self.data / "dead").glob("*"))
        assert self.readiness()["ready"] == "200"


def wait_for_condition(
    is_true: Callable[[], object], what: str, more: Callable[[], str] = str, *, patience_s: float = PATIENCE_S
) -> None:
    """Poll until the condition is true; fail with `what` after `patience_s`."""
    deadline_s = time.monotonic() + patience_s
    while not is_true():
        assert time.monotonic() < deadline_s, f"{what}: {more()}"
        time.sleep(0.1)


def url_through(proxy: Proxy, server_url: str, database: str, *, scheme: str = "http") -> str:
    """Return the store's URL with the proxy's port."""
    user = server_url.partition("://")[2].partition("@")[0]
    return f"{scheme}://{user}@127.0.0.1:{proxy.port}/{database}"
