"""Intake process: accepts deliveries on a listening socket and writes them to a journal directory.

Invariant: when told to stop, the process accepts no more connections, answers the requests in flight, seals
the journal and then exits. It also stops when the supervisor exits. If the committer fails, the process ends,
so that the supervisor replaces it.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from receiver import process, transcode
from receiver.channel import Pems, Reload, Start
from receiver.clock import NOTE_NAME, Now
from receiver.errors import JournalFull, OperatorError, place_and_reason
from receiver.intake.admission import Admission, budget
from receiver.intake.committer import Committer
from receiver.intake.connections.listener import caps
from receiver.intake.connections.load_shedding import HELD_MAX, HELD_SHARE, LoadShedder, held_max
from receiver.intake.connections.server import IntakeServer
from receiver.intake.connections.tls import Certificates, expiry_warning
from receiver.intake.group import Transcode
from receiver.intake.handler import DeliveryHandler
from receiver.intake.routes import Routes
from receiver.journal.appender import Appender
from receiver.journal.digest_key import DigestKey
from receiver.journal.quarantine import Quarantine
from receiver.journal.writer_notes import SegmentOutcome
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import Commit, Delivery, SegmentId
from receiver.settings import Settings, Webhook

CERTIFICATES_POLL_S = 1.0
"""Interval between two checks whether the certificate files have changed."""
DESCRIPTORS_RESERVED = 256
"""Descriptors reserved for the journal, the channel and connections that are being refused."""
CONNECTIONS_GRACE_SHARE = 0.5
"""Share of the stop grace period for connections; the rest is for the journal."""


KeepWebhook = Callable[[Webhook, float, bytes], Awaitable[None]]
"""Stores a webhook within a deadline. Raises `MalformedBody`, or `Unavailable` if it is not on disk."""
MakeKeeper = Callable[[Path, Callable[[], int]], KeepWebhook]
"""Returns the keeper of webhooks for a data directory and a clock in nanoseconds."""


class Intake:
    """The components of an intake process, connected. Implements `receiver.process.Work`."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        last_good: Pems | None = None,
        make_keeper: MakeKeeper | None = None,
    ) -> None:
        """`make_keeper`: returns the keeper of webhooks; without it, webhooks have no path."""
        self._settings = settings
        self._metrics = metrics
        limits, data = settings.limits, Path(settings.data_dir)
        self._certificates = _certificates(settings, last_good)
        self._digest_key = DigestKey(data)
        self._appender = LazyJournal(self._opened_journal)
        self._committer = Committer(
            bind(settings, self._digest_key),
            self._appender,
            Quarantine(data / "aside"),
            metrics,
            answer_deadline_s=limits.answer_deadline_s,
        )
        self._admission = Admission(budget(limits, settings.drain), self._committer.refuse_if_overloaded)
        now_ns = Now(data / NOTE_NAME).ns
        self._keep_webhook = make_keeper(data, now_ns) if make_keeper else None
        self._delivery_handler = DeliveryHandler(
            self._routes(settings), limits, self._admission, self._committer.submit, metrics, now_ns=now_ns
        )
        lingering_max = held_max(limits.connections_max)
        load_shedder = LoadShedder(self._committer.refuse_if_overloaded, metrics, held_max=lingering_max)
        self._server = IntakeServer(
            self._delivery_handler,
            self._committer,
            limits,
            caps(settings),
            metrics,
            load_shedder=load_shedder,
        )
        self._committing: asyncio.Task[None] | None = None
        self._certificate_poll: asyncio.Task[None] | None = None
        self._warned_of_s = -1.0

    async def start(self, listen_fd: int) -> None:
        """Start to accept deliveries."""
        # Before the socket: the first delivery already needs the committer.
        self._committing = asyncio.create_task(self._committer.run())
        context = self._certificates.context if self._certificates else None
        self._server.listen(socket.socket(fileno=listen_fd), context)
        if self._certificates is not None:
            self._certificate_poll = asyncio.create_task(self._poll_certificates(self._certificates))

    async def reload(self, message: Reload) -> None:
        """Apply new drains, secrets, limits, policy and certificates. Keeps the old settings on an error."""
        settings = with_descriptors(message.settings)
        limits = settings.limits
        try:
            # Both calls that can fail come before the first change: settings must not apply in part.
            routes = self._routes(settings)
            new_transcode = bind(settings, self._digest_key)
        except OperatorError as error:
            limited.error(
                "reload", "settings cannot be applied; the old settings stay in force", error=str(error)
            )
            return
        self._delivery_handler.use(routes, limits)
        self._committer.use(new_transcode, limits.answer_deadline_s)
        self._admission.budget = budget(limits, settings.drain)
        self._server.use(limits, caps(settings))
        if self._certificates is not None and settings.tls.cert_file:
            self._certificates.reload(settings.tls)
        self._settings = settings

    def _routes(self, settings: Settings) -> Routes:
        routes = Routes(settings.drain, settings.limits, post_root=settings.post_root)
        if (webhook := settings.platform.webhook).path and self._keep_webhook:
            deadline_s = settings.limits.answer_deadline_s
            routes.add_webhooks(webhook, partial(self._keep_webhook, webhook, deadline_s))
        return routes

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        """Accept also from the sockets of intakes that are being replaced."""
        self._server.accept_for(listen_fds)

    async def seal(self) -> None:
        """Seal the open segment, so that the store process can insert it before it stops."""
        await self._committer.seal()

    def health(self) -> dict[str, str]:
        """Return the problem of each health check (empty if there is none), and set the gauges."""
        for task in (self._committing, self._certificate_poll):
            if task is not None and task.done() and not task.cancelled():
                # Raises the error of a task that failed, which ends the process.
                task.result()
        self._metrics.set("connections", self._server.connection_count)
        self._metrics.set("inflight_bytes", self._admission.bytes_in_flight)
        self._metrics.set("open_segment_age_seconds", self._appender.open_age_s)
        checks = {"journal": self._appender.trouble or self._appender.full_reason() or ""}
        if self._certificates is not None:
            left_s = self._certificates.expires_at_s - time.time()
            self._metrics.set("certificate_expires_in_seconds", left_s)
            expiry = expiry_warning(left_s)
            self._warn_of_expiry(expiry, self._certificates.expires_at_s)
            checks["certificate"] = self._certificates.trouble or expiry
        return checks

    def _warn_of_expiry(self, expiry: str, expires_at_s: float) -> None:
        """Log that a certificate must be renewed, once per certificate."""
        if expiry and self._warned_of_s != expires_at_s:
            self._warned_of_s = expires_at_s
            limited.warning("certificate_ends", "certificate must be renewed", error=expiry)

    async def stop(self) -> None:
        """Answer the requests in flight, then seal and close the journal."""
        grace_s = self._settings.limits.stop_grace_s
        # The store has stopped already: no space will become free, and nothing more will be stored.
        self._committer.stop_waiting()
        # Requests in flight still need the committer, so it is closed only after the server.
        await self._server.stop(grace_s * CONNECTIONS_GRACE_SHARE)
        self._admission.is_closed = True
        if self._certificate_poll is not None:
            self._certificate_poll.cancel()
        if self._committing is not None:
            await self._committer.close(self._committing)

    def _opened_journal(self) -> Appender:
        """Open the journal and load the digest key, which every record needs."""
        appender = Appender(Path(self._settings.data_dir) / "journal", self._settings.journal)
        try:
            self._digest_key.load()
        except OSError as error:
            # The next attempt creates another epoch directory.
            appender.close()
            cause = place_and_reason(error)
            raise OperatorError(f"digest key: {cause}; expected a readable and writable file") from error
        return appender

    async def _poll_certificates(self, certificates: Certificates) -> None:
        while True:
            await asyncio.sleep(CERTIFICATES_POLL_S)
            certificates.reload_if_changed()


def bind(settings: Settings, digest_key: DigestKey) -> Transcode:
    """Bind the core to the policy of these settings. The key is loaded when the journal is opened."""
    policy = transcode.policy(settings)

    def bound(deliveries: Sequence[Delivery | transcode.FastBatch], segment: SegmentId) -> Commit:
        return transcode.commit(policy, deliveries, segment, digest_key.load().secret)

    return bound


def _certificates(settings: Settings, last_good: Pems | None) -> Certificates | None:
    if not settings.tls.cert_file:
        return None
    return Certificates(
        settings.tls,
        lambda error: limited.error(
            "certificate", "certificate cannot be used; the old one stays in force", error=error
        ),
        last_good,
    )


def with_descriptors(settings: Settings) -> Settings:
    """Raise the file descriptor limit to what the connection limit needs, or lower the connection limit."""
    connections_max = settings.limits.connections_max
    descriptors_needed = connections_max + held_max(connections_max) + DESCRIPTORS_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = descriptors_needed if hard == resource.RLIM_INFINITY else min(descriptors_needed, hard)
    if soft < possible:
        # Up to the hard limit no privilege is needed.
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible == descriptors_needed:
        return settings
    # Each connection also needs its share of a descriptor for lingering sockets (see `held_max`).
    left = possible - DESCRIPTORS_RESERVED
    connections_max = max(1, left * HELD_SHARE // (HELD_SHARE + 1), left - HELD_MAX)
    limited.warning(
        "descriptors",
        "file descriptor limit lowers the connection limit; raise LimitNOFILE",
        descriptors_max=possible,
        connections_max=connections_max,
    )
    limits = msgspec.structs.replace(settings.limits, connections_max=connections_max)
    return msgspec.structs.replace(settings, limits=limits)


async def begin(start: Start, metrics: Metrics, make_keeper: MakeKeeper | None = None) -> Intake:
    """Build the intake and start to accept deliveries."""
    intake = Intake(with_descriptors(start.settings), metrics, start.last_good, make_keeper)
    await intake.start(start.listen_fd)
    return intake


def main(make_keeper: MakeKeeper | None = None) -> None:
    """Run as a child of the supervisor. `make_keeper`: see `Intake`."""
    process.run(partial(begin, make_keeper=make_keeper))


RETRY_S = 1.0
"""Interval between two attempts to open the journal."""
NOT_OPEN = "the journal cannot be opened; retry in a moment"


class LazyJournal:
    """An appender that tries repeatedly to open the journal. Implements `receiver.intake.committer.Appender`.

    Each intake start creates its own epoch directory, which fails on a full disk. The intake runs
    nevertheless. Until the directory can be created, senders get 503, as from a full journal.

    Invariant: the committer calls no other method before `full_reason` has returned `None`.
    """

    def __init__(
        self, open_journal: Callable[[], Appender], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._open_journal = open_journal
        self._now = now
        self._appender: Appender | None = None
        self._open_error = ""
        self._tried_at_s = 0.0
        self._try_open()

    def _try_open(self) -> None:
        self._tried_at_s = self._now()
        try:
            self._appender = self._open_journal()
        except OperatorError as error:
            self._open_error = str(error)
            limited.error(
                "journal", "journal cannot be opened; deliveries are answered 503", error=self._open_error
            )

    def _require_open(self) -> Appender:
        if self._appender is None:
            raise JournalFull(NOT_OPEN)
        return self._appender

    @property
    def trouble(self) -> str:
        """The last error of the disk; empty if there is none."""
        return self._open_error if self._appender is None else self._appender.trouble

    @property
    def open_age_s(self) -> float:
        """The age of the open segment; 0 if there is none."""
        return 0.0 if self._appender is None else self._appender.open_age_s

    def full_reason(self, more_bytes: int = 0) -> str | None:
        """See `Appender`."""
        return NOT_OPEN if self._appender is None else self._appender.full_reason(more_bytes)

    def choose(self, *, is_awaited: bool = False) -> SegmentId:
        """See `Appender`."""
        return self._require_open().choose(is_awaited=is_awaited)

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """See `Appender`."""
        self._require_open().append(segment, record, rows)

    @property
    def has_retired(self) -> bool:
        """See `Appender`."""
        return self._appender is not None and self._appender.has_retired

    def seal_retired(self) -> None:
        """See `Appender`."""
        self._require_open().seal_retired()

    def is_stored(self, segment: SegmentId) -> bool:
        """See `Appender`."""
        return self._appender is not None and self._appender.is_stored(segment)

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        """See `Appender`."""
        return None if self._appender is None else self._appender.outcome_of(segment)

    def retire_if_due(self) -> None:
        """See `Appender`. The committer calls this regularly, so it also retries to open the journal."""
        # Runs on the disk thread, so that a disk that hangs blocks no connection.
        if self._appender is not None:
            self._appender.retire_if_due()
        elif self._now() - self._tried_at_s >= RETRY_S:
            self._try_open()

    def seal(self) -> None:
        """See `Appender`."""
        if self._appender is not None:
            self._appender.seal()

    def close(self) -> None:
        """See `Appender`."""
        if self._appender is not None:
            self._appender.close()
