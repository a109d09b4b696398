"""Support for tests of the intake: doubles of the core and the journal, a running intake, a sender."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ParamSpec, Self

import uvloop

from receiver.errors import JournalFull
from receiver.intake.admission import Admission, budget
from receiver.intake.batch import deliveries_of
from receiver.intake.committer import Committer
from receiver.intake.connections.listener import caps
from receiver.intake.connections.load_shedding import LoadShedder
from receiver.intake.connections.server import IntakeServer
from receiver.intake.handler import DeliveryHandler
from receiver.intake.routes import KeepWebhook, Routes
from receiver.journal.quarantine import Quarantine
from receiver.journal.writer_notes import SegmentOutcome
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import Drain, Limits, Settings, Webhook
from receiver.transcode import FastBatch

P = ParamSpec("P")
TEST_S_MAX = 20
"""A test that hangs fails; pytest-timeout's signal does not reach into uvloop."""
SPAN_BODY = b"\n\x05spans"


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on the event loop that the intake runs on."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), TEST_S_MAX))

    return run


async def until(condition: Callable[[], object]) -> None:
    """Poll until the condition holds; the timeout of the test ends a wait that never succeeds."""
    while not condition():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.005)


@dataclass
class OutcomeDouble:
    """Outcome of one delivery, by default accepted completely."""

    verdict: str = "accepted"
    received: int = 1
    stored: int = 1
    sampled_out: int = 0
    rejected: int = 0
    unresolved: int = 0
    message: str = ""
    field: str = ""
    reasons: Sequence[tuple[str, int]] = ()

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        return self.received, self.stored, self.sampled_out, self.rejected, self.unresolved

    @property
    def is_plain(self) -> bool:
        return self.verdict == "accepted" and not self.rejected and not self.message


@dataclass
class CommitDouble:
    record: bytes
    rows: int
    outcomes: list[OutcomeDouble]
    drains: list[str]

    @property
    def spans(self) -> list[tuple[str, int, int, int, int, int]]:
        return [
            (drain, *outcome.counts)
            for drain, outcome in zip(self.drains, self.outcomes, strict=True)
            if outcome.verdict == "accepted"
        ]

    @property
    def reasons(self) -> list[tuple[str, int]]:
        return [
            reason for outcome in self.outcomes if outcome.verdict == "accepted" for reason in outcome.reasons
        ]


@dataclass
class CoreDouble:
    """A core that decodes only as much as the tests need, and can be paused."""

    special: dict[bytes, OutcomeDouble] = field(default_factory=dict)
    groups: list[list[Delivery]] = field(default_factory=list)
    may_continue: threading.Event = field(default_factory=threading.Event)
    running: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_continue.set()

    @classmethod
    def paused(cls) -> Self:
        """Return a core that waits in its first group until `may_continue` is set."""
        core = cls()
        core.pause()
        return core

    def pause(self) -> None:
        """Wait in the next group until `may_continue` is set. `running` is set when the group begins."""
        self.may_continue.clear()
        self.running.clear()

    def __call__(self, members: Sequence[Delivery | FastBatch], segment: SegmentId) -> CommitDouble:
        deliveries = [delivery for member in members for delivery in singles(member)]
        return self.transcode(deliveries, segment)

    def transcode(self, deliveries: Sequence[Delivery], segment: SegmentId) -> CommitDouble:
        self.groups.append(list(deliveries))
        self.running.set()
        self.may_continue.wait(10)
        outcomes = [self.special.get(delivery.body) or outcome_of(delivery) for delivery in deliveries]
        kept = [
            delivery.body
            for delivery, outcome in zip(deliveries, outcomes, strict=True)
            if outcome.verdict == "accepted"
        ]
        record = b"%d:" % segment.seq + b"|".join(kept) if kept else b""
        return CommitDouble(record, len(kept), outcomes, [delivery.drain for delivery in deliveries])

    @property
    def deliveries(self) -> list[Delivery]:
        return [delivery for group in self.groups for delivery in group]


def singles(member: Delivery | FastBatch) -> list[Delivery]:
    return [delivery for _, delivery in deliveries_of(member)] if isinstance(member, FastBatch) else [member]


def outcome_of(delivery: Delivery) -> OutcomeDouble:
    """Decompress gzip, and refuse bodies that are clearly not of their content type."""
    body = delivery.body
    malformed = OutcomeDouble("malformed", message="not one well-formed document", field="resource_spans")
    if delivery.encodings == ("gzip",) or body.startswith(b"\x1f\x8b"):
        unpacker = zlib.decompressobj(31)
        try:
            body = unpacker.decompress(body)
        except zlib.error:
            return malformed
        if not unpacker.eof or unpacker.unused_data:
            return malformed
    elif delivery.encodings:
        return malformed if delivery.encodings == ("snappy",) else OutcomeDouble()
    first = b"\n" if delivery.content_kind is ContentKind.PROTOBUF else b"{"
    return OutcomeDouble() if body[:1] in {first, b""} else malformed


@dataclass
class AppenderDouble:
    """A journal in memory that can be slow, full, stale or broken."""

    appended: list[tuple[SegmentId, bytes, int]] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)
    full: str | None = None
    room_bytes: int = 1 << 30
    seq: int = 0
    stored: set[SegmentId] = field(default_factory=set)
    """Segments that are no longer in the journal."""
    outcomes: dict[SegmentId, SegmentOutcome] = field(default_factory=dict)
    may_continue: threading.Event = field(default_factory=threading.Event)
    running: threading.Event = field(default_factory=threading.Event)
    sealed_count: int = 0
    seal_count: int = 0
    has_retired: bool = False
    may_seal: threading.Event = field(default_factory=threading.Event)
    closed: bool = False
    is_awaited: bool = False
    """Whether a sender of the last group waits until its deliveries are stored."""

    def __post_init__(self) -> None:
        self.may_continue.set()
        self.may_seal.set()

    def choose(self, *, is_awaited: bool = False) -> SegmentId:
        self.is_awaited = is_awaited
        return SegmentId(7, self.seq)

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        self.running.set()
        self.may_continue.wait(10)
        if (reason := self.full_reason(len(record))) is not None:
            raise JournalFull(reason)
        if self.trouble:
            trouble = self.trouble.pop(0)
            self.seq += 1
            raise trouble
        self.appended.append((segment, record, rows))

    def retire_if_due(self) -> None:
        self.sealed_count += 1

    def seal_retired(self) -> None:
        self.may_seal.wait(10)

    def seal(self) -> None:
        self.seal_count += 1

    def close(self) -> None:
        self.closed = True

    def full_reason(self, more_bytes: int = 0) -> str | None:
        if self.full is None and more_bytes > self.room_bytes:
            return f"journal has room for {self.room_bytes} bytes"
        return self.full

    def is_stored(self, segment: SegmentId) -> bool:
        return segment in self.stored

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        return self.outcomes.get(segment)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes


@dataclass
class Intake:
    server: IntakeServer
    admission: Admission
    delivery_handler: DeliveryHandler
    committer: Committer
    core: CoreDouble
    appender: AppenderDouble
    metrics: Metrics
    port: int
    load_shedder: LoadShedder
    tls: ssl.SSLContext | None = None
    opened: list[Connection] = field(default_factory=list)

    async def connect(self, source: str = "127.0.0.1") -> Connection:
        """Open a connection. It is closed when the intake stops, if the test does not close it."""
        name = "localhost" if self.tls else None
        streams = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.tls, server_hostname=name, local_addr=(source, 0)
        )
        self.opened.append(Connection(*streams))
        return self.opened[-1]

    async def used_connection(self, source: str = "127.0.0.1", **headers: str) -> Connection:
        """Open a connection with an accepted delivery. The next with the same head takes the fast path."""
        connection = await self.connect(source)
        assert (await connection.exchange(request(SPAN_BODY, "/v1/traces", "POST", **headers))).status == 200
        return connection

    async def exchange(self, raw: bytes) -> Answer:
        """Send these bytes on a new connection and read one answer."""
        connection = await self.connect()
        try:
            return await connection.exchange(raw)
        finally:
            await connection.close()

    async def received_after(self, raw: bytes) -> bytes:
        """Send these bytes on a new connection, and return what is received until the receiver closes it."""
        connection = await self.connect()
        connection.writer.write(raw)
        return await connection.closed()

    def held_count(self) -> int:
        """Return how many deliveries wait for room in the journal."""
        return len(self.committer._queue) + len(self.committer._hold._held)  # noqa: SLF001

    async def post(self, body: bytes = SPAN_BODY, path: str = "/v1/traces", **headers: str) -> Answer:
        """Post a body; header names are written with underscores."""
        return await self.exchange(request(body, path, "POST", **headers))

    def counted(self, name: str, *labels: str) -> float:
        return sum(
            series.value
            for series in self.metrics.snapshot().series
            if series.name == name and series.labels[: len(labels)] == labels
        )


def request(body: bytes = SPAN_BODY, path: str = "/v1/traces", method: str = "POST", **headers: str) -> bytes:
    """Write a request; headers set to "" are omitted."""
    named = {
        "host": "x",
        "content_type": "application/x-protobuf",
        "content_length": str(len(body)),
        **headers,
    }
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items() if value]
    return (
        "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("utf-8", "surrogateescape") + body
    )


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def exchange(self, raw: bytes, *, bodyless: bool = False) -> Answer:
        self.writer.write(raw)
        return await self.answer(bodyless=bodyless)

    async def answer(self, *, bodyless: bool = False) -> Answer:
        """Read one response; interim ones are kept in `raw`."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        raw = head
        if head.startswith(b"HTTP/1.1 100"):
            head = await self.reader.readuntil(b"\r\n\r\n")
            raw += head
        first, *lines = head.decode().rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await self.reader.readexactly(0 if bodyless else int(headers.get("content-length", "0")))
        return Answer(int(first.split()[1]), headers, body, raw + body)

    async def closed(self) -> bytes:
        """Wait until the receiver closes, and return the bytes that it sent before."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b"reset"
        finally:
            await self.close()

    async def close(self) -> None:
        """Close this end."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            return


@asynccontextmanager
async def running(  # noqa: PLR0913 - each test needs only a few
    *drains: Drain,
    limits: Limits | None = None,
    core: CoreDouble | None = None,
    appender: AppenderDouble | None = None,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    listening: socket.socket | None = None,
    webhooks: tuple[Webhook, KeepWebhook] | None = None,
) -> AsyncIterator[Intake]:
    """Run an intake on loopback, with doubles behind it. `tls`: the receiver's and the sender's context."""
    limits = limits or Limits()
    core, appender, metrics = core or CoreDouble(), appender or AppenderDouble(), Metrics("intake-0")
    quarantine = Quarantine(Path(mkdtemp()))
    committer = Committer(core, appender, quarantine, metrics, answer_deadline_s=limits.answer_deadline_s)
    admission = Admission(budget(limits, drains), committer.refuse_if_overloaded)
    routes = Routes(drains or (Drain(name="default"),), limits, post_root=True)
    if webhooks is not None:
        routes.add_webhooks(*webhooks)
    delivery_handler = DeliveryHandler(routes, limits, admission, committer.submit, metrics)
    load_shedder = LoadShedder(committer.refuse_if_overloaded, metrics)
    server = IntakeServer(
        delivery_handler, committer, limits, caps(Settings(limits=limits)), metrics, load_shedder=load_shedder
    )
    sock = listening or socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    committing = asyncio.create_task(committer.run())
    server.listen(sock, tls[0] if tls else None)
    parts = (server, admission, delivery_handler, committer, core, appender, metrics, port, load_shedder)
    intake = Intake(*parts, tls[1] if tls else None)
    try:
        yield intake
    finally:
        core.may_continue.set()
        appender.may_continue.set()
        for connection in intake.opened:
            await connection.close()
        await server.stop(0.1)
        await committer.close(committing)
