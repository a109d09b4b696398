"""The intake process: everything between a listening socket and a journal directory.

Keeps: on stop the order is: accept no more, answer what is in flight, seal, let go. A supervisor that is
gone is a stop. A committer that ends by itself ends the process, so that it is replaced.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from receiver import process, transcode
from receiver.channel import Pems, Start
from receiver.clock import NOTE_NAME, Now
from receiver.errors import OperatorError, place_and_reason
from receiver.intake.admission import Admission, budget
from receiver.intake.committer import Committer
from receiver.intake.handler import DeliveryHandler
from receiver.intake.lazy_journal import LazyJournal
from receiver.intake.listener import caps
from receiver.intake.load_shedding import HELD_MAX, HELD_SHARE, LoadShedder, held_max
from receiver.intake.outcome import Transcode
from receiver.intake.quarantine import Quarantine
from receiver.intake.routes import Routes
from receiver.intake.server import IntakeServer
from receiver.intake.tls import Certificates, ending_reason
from receiver.journal.appender import Appender
from receiver.journal.digest_key import DigestKey
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import Commit, Delivery, SegmentId
from receiver.settings import Settings

CERTIFICATES_LOOK_S = 1.0
DESCRIPTORS_BESIDE = 256
"""Descriptors that are not connections: journal, channel, connections being refused."""
CLOSE_SHARE = 0.5
"""Of the grace to stop, what connections get; the rest is for the journal."""


class Intake:
    """The rooms of the intake, wired. Fits `receiver.process.Work`."""

    def __init__(self, settings: Settings, metrics: Metrics, last_good: Pems | None = None) -> None:
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
        self._admission = Admission(budget(limits, settings.drain), self._committer.require_time)
        routes = Routes(settings.drain, limits, post_root=settings.post_root)
        self._reception = DeliveryHandler(
            routes,
            limits,
            self._admission,
            self._committer,
            metrics,
            now_ns=Now(data / NOTE_NAME).ns,
        )
        held = held_max(limits.connections_max)
        away = LoadShedder(self._committer.require_time, metrics, held_max=held)
        self._server = IntakeServer(self._reception, limits, caps(settings), metrics, away=away)
        self._committing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._warned_of_s = -1.0

    async def start(self, listen_fd: int) -> None:
        """Take deliveries from now on."""
        self._committing = asyncio.create_task(self._committer.run())
        context = self._certificates.context if self._certificates else None
        self._server.listen(socket.socket(fileno=listen_fd), context)
        if self._certificates is not None:
            self._looking = asyncio.create_task(self._look_at_certificates(self._certificates))

    async def reload(self, settings: Settings) -> None:
        """Use new drains, secrets, limits, policy and certificates; what is wrong leaves the old in force."""
        settings = with_descriptors(settings)
        limits = settings.limits
        try:
            routes = Routes(settings.drain, limits, post_root=settings.post_root)
            new_transcode = bind(settings, self._digest_key)
        except OperatorError as reason:
            limited.error("reload", "settings are not used; the old ones stay in force", error=str(reason))
            return
        self._reception.use(routes, limits)
        self._committer.use(new_transcode, limits.answer_deadline_s)
        self._admission.budget = budget(limits, settings.drain)
        self._server.use(limits, caps(settings))
        if self._certificates is not None and settings.tls.cert_file:
            self._certificates.reload(settings.tls)
        self._settings = settings

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        """Accept also from the sockets of intakes that are being replaced."""
        self._server.accept_for(listen_fds)

    async def seal(self) -> None:
        """Seal the open segment, because the store is about to stop."""
        await self._committer.seal()

    def health(self) -> dict[str, str]:
        """Say what stands in the way of a 200, and set the gauges."""
        for task in (self._committing, self._looking):
            if task is not None and task.done() and not task.cancelled():
                task.result()
        self._metrics.set("connections", self._server.connection_count)
        self._metrics.set("inflight_bytes", self._admission.bytes_in_flight)
        checks = {"journal": self._appender.trouble or self._appender.full_reason() or ""}
        if self._certificates is not None:
            left_s = self._certificates.expires_at_s - time.time()
            self._metrics.set("certificate_expires_in_seconds", left_s)
            ending = ending_reason(left_s)
            self._warn_of(ending, self._certificates.expires_at_s)
            checks["certificate"] = self._certificates.trouble or ending
        return checks

    def _warn_of(self, ending: str, expires_at_s: float) -> None:
        """Say once of each certificate that it ends."""
        if ending and self._warned_of_s != expires_at_s:
            self._warned_of_s = expires_at_s
            limited.warning("certificate_ends", "certificate is to be renewed", error=ending)

    async def stop(self) -> None:
        """Answer what is in flight, hand the journal over."""
        grace_s = self._settings.limits.stop_grace_s
        self._committer.wait_no_longer()
        await self._server.stop(grace_s * CLOSE_SHARE)
        self._admission.is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        if self._committing is not None:
            await self._committer.close(self._committing)

    def _opened_journal(self) -> Appender:
        """Open the journal and load the digest key: no record is made without it."""
        appender = Appender(Path(self._settings.data_dir) / "journal", self._settings.journal)
        try:
            self._digest_key.load()
        except OSError as reason:
            appender.close()
            found = place_and_reason(reason)
            raise OperatorError(f"digest key: {found}; expected a file to read and write") from reason
        return appender

    async def _look_at_certificates(self, certificates: Certificates) -> None:
        while True:
            await asyncio.sleep(CERTIFICATES_LOOK_S)
            certificates.reload_if_changed()


def bind(settings: Settings, digest_key: DigestKey) -> Transcode:
    """Bind the core to the policy of these settings. The key is loaded before the journal is open."""
    policy = transcode.policy(settings)

    def bound(deliveries: Sequence[Delivery], segment: SegmentId) -> Commit:
        return transcode.commit(policy, deliveries, segment, digest_key.load().secret)

    return bound


def _certificates(settings: Settings, last_good: Pems | None) -> Certificates | None:
    if not settings.tls.cert_file:
        return None
    return Certificates(
        settings.tls,
        lambda why: limited.error(
            "certificate", "certificate is not used; the old one stays in force", error=why
        ),
        last_good,
    )


def with_descriptors(settings: Settings) -> Settings:
    """Make room for as many descriptors as connections are allowed, or allow fewer connections."""
    connections_max = settings.limits.connections_max
    wanted = connections_max + held_max(connections_max) + DESCRIPTORS_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible == wanted:
        return settings
    left = possible - DESCRIPTORS_BESIDE
    connections_max = max(1, left * HELD_SHARE // (HELD_SHARE + 1), left - HELD_MAX)
    limited.warning(
        "descriptors", "open files are limited, so connections are", connections_max=connections_max
    )
    limits = msgspec.structs.replace(settings.limits, connections_max=connections_max)
    return msgspec.structs.replace(settings, limits=limits)


async def begin(start: Start, metrics: Metrics) -> Intake:
    """Set everything up and take deliveries."""
    intake = Intake(with_descriptors(start.settings), metrics, start.last_good)
    await intake.start(start.listen_fd)
    return intake


def main() -> None:
    """Run as a child of the supervisor."""
    process.run(begin)


if __name__ == "__main__":
    main()
