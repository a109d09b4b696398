"""A whole receiver before a server that goes wrong, a sender that wants to be rid of its spans, the count.

What must hold after each fault: `assert_kept`. Senders saw nothing but 200, or 503 where the journal is full.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from receiver.engine.store import Store
from tests.e2e.running import Running
from tests.faults.proxy import Proxy
from tests.torture.checker import check
from tests.torture.oracle import DRAINS, LANES, Delivery, Oracle
from tests.torture.senders import Fate

SETTLE_S = 90.0
"""From the end of a fault to an empty journal: a wait between two tries may be under way."""
SEGMENT_BYTES_MAX = 1 << 16
"""Small, so that a short outage leaves several."""
PAUSE_S = 0.1
"""Between two deliveries of a sender."""


class Site(Running):
    """A receiver, its sender and everything the sender knows."""

    def __init__(
        self, data: Path, url: str, store: Store, proxy: Proxy, *, journal_bytes_max: int = 1 << 30
    ) -> None:
        config = f'[store]\nurl = "{url}"\nretention_days = 20000\ninsert_timeout_s = 2\n'
        config += f"\n[journal]\nsegment_bytes_max = {SEGMENT_BYTES_MAX}\nbytes_max = {journal_bytes_max}\n"
        config += f'\n[[drain]]\nname = "{DRAINS[0].name}"\n'
        super().__init__(data, config=config)
        self.proxy = proxy
        self.store = store
        """Past the proxy: what a human sees."""
        self.fates: dict[int, Fate] = {}
        self.answers: Counter[int] = Counter()
        self._oracle = Oracle(seed=hash(data) & 0xFFFF)
        self._numbers = (number for number in itertools.count() if LANES[number % len(LANES)] is DRAINS[0])

    def deliver(self, count: int = 1) -> None:
        """Send the next deliveries, each until it is answered with 200."""
        for delivery in map(self._oracle.delivery, itertools.islice(self._numbers, count)):
            fate = self.fates.setdefault(delivery.number, Fate())
            while not fate.acknowledged:
                self._attempt(delivery, fate)

    def _attempt(self, delivery: Delivery, fate: Fate) -> None:
        fate.attempts += 1
        host, port = self.address
        connection = http.client.HTTPConnection(host, port, timeout=SETTLE_S)
        try:
            connection.request("POST", delivery.drain.path, delivery.body, delivery.headers)
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        self.answers[answer.status] += 1
        if answer.status == 200:
            fate.acknowledged += 1
        else:
            assert answer.status == 503
            time.sleep(0.2)

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Deliver one after the other while the block runs."""
        ending = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                while not ending.wait(PAUSE_S):
                    self.deliver()
            except BaseException as failure:  # noqa: BLE001 - raised below
                failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(SETTLE_S)
        if failures:
            raise failures[0]

    def wait_until(self, is_so: Callable[[], object], what: str, *, patience_s: float = SETTLE_S) -> None:
        """Look again and again, for as long as a try may be away."""
        await_that(is_so, what, self._describe, patience_s=patience_s)

    def _describe(self) -> str:
        return f"{self.readiness()}, {len(self.backlog())} segments\n{self.log()[-3_000:]}"

    def readiness(self) -> dict[str, str]:
        """What each check of the store process says; `ready` says what the status was."""
        connection = http.client.HTTPConnection(*_host_and_port(str(self.state()["admin"])), timeout=10)
        try:
            connection.request("GET", "/readyz", headers={"Accept": "application/json"})
            answer = connection.getresponse()
            checks = json.loads(answer.read())["checks"]
        finally:
            connection.close()
        told = {check["name"]: check["reason"] for check in checks if check["process"] == "store"}
        return {**told, "ready": str(answer.status)}

    @property
    def trouble(self) -> str:
        """What `/readyz` says is in the way of the store."""
        return self.readiness().get("store", "starting")

    def wait_for_trouble(self, text: str) -> None:
        """Until it is told; intake is ready all the while."""
        self.wait_until(lambda: text in self.trouble, f"expected trouble with '{text}'")
        assert self.readiness()["ready"] == "200"

    def metric(self, name: str) -> float:
        """A counter or gauge, all labels together; 0: it was never told."""
        lines = [line for line in self.metrics().splitlines() if line.startswith(f"trace_drain_{name}")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def assert_kept(self, *, settle_s: float = SETTLE_S) -> None:
        """All that was acknowledged is stored, once, as it was sent; nothing is left; all is well again."""
        self.wait_until(
            lambda: not self.backlog() and not self.trouble, "journal does not run empty", patience_s=settle_s
        )
        findings = check(self.store, self._oracle, self.fates)
        assert not findings.violations, findings.examples
        assert all(fate.acknowledged for fate in self.fates.values())
        assert not list((self.data / "dead").glob("*"))
        assert self.readiness()["ready"] == "200"


def await_that(
    is_so: Callable[[], object], what: str, more: Callable[[], str] = str, *, patience_s: float = SETTLE_S
) -> None:
    """Look again and again; `what` is wrong when it never comes true."""
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what}: {more()}"
        time.sleep(0.1)


def url_through(proxy: Proxy, server_url: str, database: str, *, scheme: str = "http") -> str:
    """The store's URL with the proxy's port in it."""
    user = server_url.partition("://")[2].partition("@")[0]
    return f"{scheme}://{user}@127.0.0.1:{proxy.port}/{database}"


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition("/")[2].rpartition(":")
    return host, int(port)
