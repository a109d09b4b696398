"""Lifecycle of the supervisor: lock the directory, bind, start, monitor, reload, stop.

The intakes start first and alone: the admin port and the store process take as long to load as the intakes,
and would delay the first answer. Until they run, requests to the admin port wait in the socket's queue.

SIGTERM and SIGINT: the intakes seal their segments, the store process inserts sealed segments and stops, and
the intakes stop last. They accept deliveries until then, so a store that hangs does not affect senders.
Deliveries acknowledged after the store process has stopped stay in the journal. A second signal kills.
SIGHUP: read the configuration again; an invalid one leaves the old one in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import structlog

from receiver import __version__, logs, transcode
from receiver.channel import Reload
from receiver.config.load import Loaded, Sources
from receiver.errors import OperatorError
from receiver.metrics import Metrics, Snapshot
from receiver.process import first_completed
from receiver.refusals import RefusalBook
from receiver.settings import Settings
from receiver.supervisor.banner import startup_banner
from receiver.supervisor.budget import MARK_S, FailureBudget
from receiver.supervisor.certificate import LastGood, with_certificate
from receiver.supervisor.child import NO_FD, Child, Patience, Role
from receiver.supervisor.data_dir import DataDir
from receiver.supervisor.health import Readiness, readiness
from receiver.supervisor.reload import applicable_settings, one_line
from receiver.supervisor.sockets import (
    DescriptorReserve,
    Sockets,
    addresses_by_name,
    open_sockets,
    urls_by_name,
    with_addresses_of,
    with_bound_addresses,
)
from receiver.supervisor.state import Pids, ReceiverState
from receiver.supervisor.summary import Summary
from receiver.time_range import instant_text

if TYPE_CHECKING:
    from receiver.supervisor.admin import Admin

KILL_MARGIN_S = 2.0
"""Time after the end of its grace period at which a process is killed."""
NO_CERTIFICATE_AUTHORITIES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""An intake connects to no server. Without these variables aiohttp would load all CA certificates twice."""
TICK_S = 1.0
"""Interval of the checks of the certificate, of silent intakes and of `receiver.json`."""
INTAKE_PAUSE_S_MAX = 1.0
"""Longest pause before an intake is restarted. Intakes start fast, and connections wait for them."""
EXIT_KILLED = 1


@dataclass(frozen=True)
class Plan:
    sources: Sources
    loaded: Loaded
    environ: Mapping[str, str]
    intake_module: str
    store_module: str
    patience: Patience = field(default_factory=Patience)


async def supervise(plan: Plan) -> int:
    """Run the receiver until a signal; return the exit code. Raises `OperatorError` if it cannot start."""
    directory = DataDir(Path(plan.loaded.settings.data_dir))
    # Before the sockets, so that a second receiver reports the directory and not a port in use.
    await directory.take()
    try:
        settings = with_certificate(plan.loaded.settings, directory.path)
        # Before any process starts: clients then wait in the backlog instead of being refused.
        sockets = open_sockets(settings, plan.environ)
        try:
            bound = with_bound_addresses(plan.loaded.settings, settings, sockets)
            return await Supervisor(plan, bound, directory, sockets).run()
        finally:
            sockets.close()
    finally:
        directory.release()


class Supervisor:
    def __init__(self, plan: Plan, settings: Settings, directory: DataDir, sockets: Sockets) -> None:
        self._plan = plan
        self._settings, self._origins = settings, plan.loaded.origins
        self._directory = directory
        self._sockets = sockets
        self._metrics = Metrics("supervisor")
        self._budget = FailureBudget(time.monotonic)
        self._summary = Summary()
        self._refusals = RefusalBook()
        self._started_at = instant_text(time.time())
        self._stop = asyncio.Event()
        self._is_past_head_start = asyncio.Event()
        self._hangup = asyncio.Event()
        self._is_changed = asyncio.Event()
        self._reserve = DescriptorReserve()
        self._is_state_written = True
        self._is_killed = False
        self._is_announced = False
        self._last_good = LastGood(settings.tls)
        lock_fd = directory.children_lock_fd
        listen_fds = tuple(listening.fileno() for listening in sockets.drain)
        self._intakes = [
            self._child(
                Role(
                    f"intake-{index}",
                    plan.intake_module,
                    listen_fd,
                    lock_fd,
                    lambda: self._last_good.pems,
                    NO_CERTIFICATE_AUTHORITIES,
                    listen_fds,
                    INTAKE_PAUSE_S_MAX,
                )
            )
            for index, listen_fd in enumerate(listen_fds)
        ]
        store_fds = tuple(listening.fileno() for listening in sockets.of_store)
        self._store = self._child(Role("store", plan.store_module, NO_FD, lock_fd, sibling_fds=store_fds))

    async def run(self) -> int:
        """Start all processes, run until a signal or an error, and stop them."""
        self._handle_signals()
        self._metrics.begin([drain.name for drain in self._settings.drain])
        self._metrics.set("counting_since_seconds", time.time())
        self._metrics.set("build_info", 1, version=__version__, core_profile=transcode.BUILD_PROFILE)
        intakes = [intake.start() for intake in self._intakes]
        store_and_admin = asyncio.create_task(self._run_store_and_admin())
        # A closed standard output must not prevent the start.
        with suppress(OSError):
            banner = startup_banner(self._settings, self._state(), self._plan.sources.file())
            print(banner, flush=True)  # noqa: T201 - the output of `serve`
        try:
            # Each runs until the receiver stops, so the first that returns or fails stops the receiver.
            await first_completed(
                asyncio.create_task(self._stop.wait()),
                asyncio.create_task(self._reload_on_hangup()),
                asyncio.create_task(self._mark_answers()),
                asyncio.create_task(self._tick()),
                asyncio.create_task(self._cover_intakes()),
                store_and_admin,
                *intakes,
            )
            await self._finish()
        finally:
            # After an error the children still run; after `_finish` this finds nothing to kill.
            self._end()
            store_and_admin.cancel()
            await asyncio.wait({store_and_admin})
            self._reserve.close()
        self._directory.remove_state()
        return EXIT_KILLED if self._is_killed else 0

    async def _run_store_and_admin(self) -> None:
        """Run store process and admin port. They start once the intakes are ready or after `head_start_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._plan.patience.head_start_s):
                await self._is_past_head_start.wait()
        # A stop ends the head start early. A process started now would only have to be stopped again.
        if self._stop.is_set():
            return
        store_task = self._store.start()
        # By name and not at the top: aiohttp would delay the first 200. In a thread, because the import takes
        # half a second, in which signals and reports must be handled.
        admin_class: type[Admin] = await asyncio.to_thread(resolve_name, "receiver.supervisor.admin:Admin")
        admin = admin_class(self._readiness, self._metrics_snapshots, self._settings, self._metrics)
        listener = await admin.serve(self._sockets.admin)
        try:
            await store_task
        finally:
            await listener.close()

    @property
    def _children(self) -> list[Child]:
        return [*self._intakes, self._store]

    def _child(self, role: Role) -> Child:
        return Child(
            role,
            self._settings,
            self._metrics,
            self._on_child_change,
            self._plan.patience,
            reserve=self._reserve,
            origins=self._origins,
            refusals=self._refusals,
        )

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for stop_signal in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stop_signal, self._request_stop)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)

    def _request_stop(self) -> None:
        if self._stop.is_set():
            # A second signal: the operator does not want to wait for the grace periods.
            self._end()
            self._is_killed = True
        self._stop.set()
        # Without this, a stop in the first seconds would wait until the head start is over.
        self._is_past_head_start.set()

    def _end(self) -> None:
        for child in self._children:
            child.end()

    async def _finish(self) -> None:
        """Stop the store process first and the intakes last, so that they accept deliveries until the end."""
        notify(self._plan.environ, "STOPPING=1")
        structlog.get_logger().info("stopping")
        # Children end by their own grace period. The margin avoids killing a child that is about to exit.
        grace_s = self._settings.limits.stop_grace_s + KILL_MARGIN_S
        # Seal first, so that the store process can still insert everything acknowledged up to now.
        await asyncio.gather(*(intake.seal() for intake in self._intakes))
        await self._store.stop(grace_s)
        for listening in self._sockets.of_store:
            listening.close()  # refuse requests at once: the store process is gone
        # Only now: until here a new connection could still be answered by an intake.
        self._sockets.stop_new_connections()
        await asyncio.gather(*(intake.stop(grace_s) for intake in self._intakes))
        self._summary.log(self._child_snapshots())
        structlog.get_logger().info("stopped")

    async def _reload_on_hangup(self) -> None:
        while True:
            await self._hangup.wait()
            # Cleared before the reload, so that a signal during the reload causes another one.
            self._hangup.clear()
            await self._reload()

    async def _reload(self) -> None:
        """Read the configuration again and apply the settings that can change at run time."""
        log = structlog.get_logger()
        # Every reload announced here ends with READY=1, also a refused one: systemd waits for it.
        notify(self._plan.environ, reloading())
        try:
            loaded = self._plan.sources.load()
            new = applicable_settings(self._settings, self._comparable(loaded.settings))
        except OperatorError as error:
            self._metrics.add("reloads", outcome="refused")
            log.error(
                "configuration was not reloaded",
                error=one_line(error),
                action="the old configuration stays in force",
            )
        else:
            self._metrics.add("reloads", outcome="taken")
            self._settings = new.settings
            self._origins = new.origins(self._origins, loaded.origins)
            # New drains get counters at 0, so that `rate()` shows their first delivery.
            self._metrics.begin([drain.name for drain in new.settings.drain])
            message = Reload(self._settings, self._origins)
            await asyncio.gather(*(child.reload(message) for child in self._children))
            log.info("configuration reloaded", changed=new.changed, at_next_start=new.waiting)
        notify(self._plan.environ, "READY=1")

    def _comparable(self, new: Settings) -> Settings:
        """Return new settings in the form of those in force: with the certificate and the bound addresses."""
        complete = with_certificate(new, self._directory.path)
        return with_addresses_of(self._settings, self._plan.loaded.settings, complete)

    def _on_child_change(self) -> None:
        """React to a process that started, became ready or exited."""
        self._is_changed.set()
        self._write_state()
        # Announced once: a process that is replaced later changes /readyz only.
        if not self._is_announced and self._readiness().ready:
            self._is_announced = True
            self._is_past_head_start.set()
            notify(self._plan.environ, "READY=1")
            structlog.get_logger().info("ready", **self._ready_fields())

    def _ready_fields(self) -> dict[str, object]:
        settings, file, urls = self._settings, self._plan.sources.file(), self._state().urls
        return {
            "version": __version__,
            **urls,
            "docs": f"{urls['api']}/docs" if "api" in urls else "off",
            "intakes": settings.intakes,
            "store": settings.store.url,
            "data_dir": str(self._directory.path.absolute()),
            "config": str(file.absolute()) if file else "none",
            "drains": [f"{drain.name} {drain.path}" for drain in settings.drain],
        }

    def _state(self) -> ReceiverState:
        return ReceiverState(
            **{name: str(address) for name, address in addresses_by_name(self._settings).items()},
            urls=urls_by_name(self._settings),
            pids=Pids(
                supervisor=os.getpid(),
                intake=tuple(intake.pid for intake in self._intakes),
                store=self._store.pid,
            ),
            version=__version__,
            started_at=self._started_at,
        )

    def _readiness(self) -> Readiness:
        return readiness(self._intakes, self._store, is_stopping=self._stop.is_set())

    def _write_state(self) -> None:
        """Write receiver.json; if that fails, `_tick` tries again."""
        # Commands need the ids of all processes, so wait until each has been started once.
        if not all(child.pid for child in self._children):
            return
        try:
            # Writing needs a descriptor, which may be available only in the reserve.
            with self._reserve.released():
                self._directory.write_state(self._state())
        except OSError as error:
            self._is_state_written = False
            logs.limited.error("state", "receiver.json cannot be written", error=error.strerror)
            return
        if not self._is_state_written:
            self._is_state_written = True
            structlog.get_logger().info("receiver.json is written again")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._last_good.refresh(self._settings.tls)
            self._reserve.refill()
            if not self._is_state_written:
                self._write_state()
            # Silence of an intake is no event, so `_cover_intakes` must look again at every tick.
            self._is_changed.set()
            self._store.show_refusals()
            logs.limited.flush()

    async def _cover_intakes(self) -> None:
        """Make intakes also accept the connections of those intakes that do not accept at the moment."""
        while True:
            await self._is_changed.wait()
            # Cleared before the state is read, so that a change during the sends below is not lost.
            self._is_changed.clear()
            accepting = [intake for intake in self._intakes if intake.is_accepting]
            # The kernel keeps sending connections to the sockets of these intakes.
            down = {intake.listen_fd for intake in self._intakes} - {intake.listen_fd for intake in accepting}
            await asyncio.gather(*(intake.accept_for(frozenset(down)) for intake in accepting))

    async def _mark_answers(self) -> None:
        while True:
            await asyncio.sleep(MARK_S)
            self._budget.mark(self._child_snapshots())
            self._summary.log(self._child_snapshots())

    def _child_snapshots(self) -> list[Snapshot]:
        return [snapshot for child in self._children for snapshot in child.snapshots]

    def _metrics_snapshots(self) -> list[Snapshot]:
        for child in self._children:
            self._metrics.set("process_up", float(child.is_ready), process=child.name)
            self._metrics.set("process_ends_recent", child.ends.count, process=child.name)
        self._budget.report(self._metrics, self._child_snapshots(), self._settings.budget)
        return [self._metrics.snapshot(), *self._child_snapshots()]


def notify(environ: Mapping[str, str], state: str) -> None:
    """Send one state, such as `READY=1`. Errors are ignored: the receiver works without systemd."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # The abstract namespace: systemd writes @ for the leading zero byte.
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


def reloading() -> str:
    """Return the state that announces a reload. `READY=1` announces its end."""
    # With `Type=notify-reload`, systemd matches the reload to its signal by this time.
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
