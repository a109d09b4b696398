"""A journal, a writer, a ledger and an engine, for tests that compare the ledger with the table."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

from receiver import transcode
from receiver.dead_letters.directory import DeadLetters
from receiver.engine.embedded import EmbeddedStore
from receiver.journal.appender import Appender
from receiver.journal.segments import Journal
from receiver.ledger.balance import Backlog, LiveBalanceSource
from receiver.ledger.query import ledger, parse_ledger_query
from receiver.model import ContentKind, Delivery
from receiver.reports import LedgerReport
from receiver.settings import Settings
from receiver.writer.environment import Environment
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support.fake_clickhouse import open_ledger, open_window
from tests.support.journal import limits
from tests.support.segments import DIGEST_KEY

POLICY = transcode.policy(Settings())


@dataclass
class Workspace:
    """A journal, a writer and an engine, with real segments."""

    root: Path
    store: EmbeddedStore

    def __post_init__(self) -> None:
        self.appender = Appender(self.root / "journal", limits())
        self.now_s = time.time()
        self.start()

    def start(self) -> None:
        """Open the ledger and the writer, as a process does that starts."""
        self.ledger = open_ledger(self.root)
        self.balances = LiveBalanceSource(self.ledger, Backlog(self.root / "journal"))
        self.writer = Writer(
            Journal(self.root / "journal"),
            self.store,
            core=transcode,
            window=open_window(self.root),
            ledger=self.ledger,
            dead=DeadLetters(self.root / "dead"),
            progress=Progress(),
            environment=Environment(
                time.time, time.monotonic, lambda _: None, random.random, self.root / "repair", 30
            ),
        )

    def restart(self) -> None:
        """Continue with what is on the disk, as after a kill."""
        self.ledger.close()
        self.start()

    def send(self, project: str, spans: int, *, bad: int = 0, trace_id: str = "", drain: str = "d") -> None:
        """Accept a delivery, in its own segment. With `trace_id` all spans are identical."""
        segment = self.appender.choose()
        delivery = self._delivery(project, spans, bad, trace_id, drain)
        done = transcode.commit(POLICY, [delivery], segment, DIGEST_KEY)
        self.appender.append(segment, done.record, done.rows)
        self.appender.seal()

    def _delivery(self, project: str, spans: int, bad: int, trace_id: str, drain: str) -> Delivery:
        spans_json = [
            {"traceId": trace_id or (f"{random.getrandbits(127) + 1:032x}" if n >= bad else ""),
             "spanId": f"{1 if trace_id else n + 1:016x}",
             "startTimeUnixNano": str(int(self.now_s * 10**9))}
            for n in range(spans + bad)
        ]  # fmt: skip
        resource = {"attributes": [{"key": "platform.projectId", "value": {"stringValue": project}}]}
        body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans_json}]}]})
        received_at_ns = int(self.now_s * 10**9)
        return Delivery(
            drain, body.encode(), ContentKind.JSON, (), received_at_ns, strict=False, body_bytes_max=1 << 20
        )

    def query(self, **more: str) -> LedgerReport:
        query = parse_ledger_query(
            {"since": "2h", "verify": "1", **more}, now_s=time.time(), row_lifetime_hours=72
        )
        return ledger(self.balances, lambda: self.store, query)
