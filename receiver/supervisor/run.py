"""The supervisor's life, in order: take the directory, bind, start, watch, reload, stop.

The intakes start first, and alone: the admin port and the store process take as long to load as they do.
Requests to the admin port meanwhile wait in the socket's queue.

SIGTERM and SIGINT: the intakes seal what they have, the store inserts what is sealed and stops, and the
intakes stop last: they accept until then, so a store that hangs costs no sender anything. What they
acknowledge after the store has stopped stays in the journal for the next start. A second signal kills.
SIGHUP: read the configuration again; a broken one leaves the old one in force.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from receiver import __version__, logs, transcode
from receiver.config.addresses import parse_address
from receiver.config.checks import problems_of
from receiver.config.load import Loaded, Sources
from receiver.errors import OperatorError
from receiver.metrics import Metrics, Snapshot
from receiver.process import first_of
from receiver.settings import Settings
from receiver.supervisor.budget import MARK_S, FailureBudget
from receiver.supervisor.certificate import LastGood, with_certificate
from receiver.supervisor.child import Child, Patience, Role
from receiver.supervisor.data_dir import DataDir, Pids, State
from receiver.supervisor.descriptors import DescriptorReserve
from receiver.supervisor.health import Readiness, readiness
from receiver.supervisor.late import admin_room
from receiver.supervisor.notify import notify, reloading
from receiver.supervisor.reload import in_one_line, reloaded
from receiver.supervisor.sockets import Sockets, address_of, open_sockets
from receiver.supervisor.summary import Summary
from receiver.supervisor.welcome import welcome

KILL_MARGIN_S = 2.0
"""What a process gets on top of its own grace before it is killed."""
TRUSTS_NOBODY = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""An intake asks no other server anything, and aiohttp reads all the authorities it could trust, twice."""
TICK_S = 1.0
"""Between two looks at the certificate, at intakes that do not report, and at what could not be written."""
INTAKE_PAUSE_S_MAX = 1.0
"""Before an intake is started again, however often it ends: it starts fast, and its connections wait."""
EXIT_KILLED = 1


@dataclass(frozen=True)
class Plan:
    """What to run."""

    sources: Sources
    loaded: Loaded
    environ: Mapping[str, str]
    intake_module: str = "receiver.intake"
    store_module: str = "receiver.web"
    patience: Patience = field(default_factory=Patience)


async def supervise(plan: Plan) -> int:
    """Run the receiver until it is told to stop. The exit code; raises `OperatorError` if it cannot start."""
    directory = DataDir(Path(plan.loaded.settings.data_dir))
    await directory.take()
    try:
        settings = with_certificate(plan.loaded.settings, directory.path)
        sockets = open_sockets(settings, plan.environ)
        try:
            return await Supervisor(
                plan, _as_bound(plan.loaded.settings, settings, sockets), directory, sockets
            ).run()
        finally:
            sockets.close()
    finally:
        directory.let_go()


def _as_bound(said: Settings, settings: Settings, sockets: Sockets) -> Settings:
    """With the addresses we got, systemd's included; what is refused for ours is refused for its."""
    addresses = {
        "listen": str(address_of(sockets.drain[0])),
        "admin_listen": str(address_of(sockets.admin)),
        "api_listen": str(address_of(sockets.api)),
    }
    problems = problems_of(msgspec.structs.replace(said, **addresses))
    if problems:
        raise OperatorError("\n".join(["the sockets that were passed cannot be used:", *problems]))
    return msgspec.structs.replace(settings, **addresses)


class Supervisor:
    """A running receiver."""

    def __init__(self, plan: Plan, settings: Settings, directory: DataDir, sockets: Sockets) -> None:
        self._plan = plan
        self._settings = settings
        self._directory = directory
        self._sockets = sockets
        self._metrics = Metrics("supervisor")
        self._budget = FailureBudget(time.monotonic)
        self._summary = Summary()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
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
                    f"intake-{place}",
                    plan.intake_module,
                    listen_fd,
                    lock_fd,
                    lambda: self._last_good.pems,
                    TRUSTS_NOBODY,
                    listen_fds,
                    INTAKE_PAUSE_S_MAX,
                )
            )
            for place, listen_fd in enumerate(listen_fds)
        ]
        self._store = self._child(Role("store", plan.store_module, sockets.api.fileno(), lock_fd))

    async def run(self) -> int:
        """From the first process to the last."""
        self._handle_signals()
        self._metrics.begin([drain.name for drain in self._settings.drain])
        self._metrics.set("counting_since_seconds", time.time())
        self._metrics.set("build_info", 1, version=__version__, core_profile=transcode.BUILD_PROFILE)
        intakes = [intake.start() for intake in self._intakes]
        rest = asyncio.create_task(self._run_rest())
        with suppress(OSError):
            told = welcome(self._settings, self._state(), self._plan.sources.file())
            print(told, flush=True)  # noqa: T201 - this is what a human started us for
        try:
            await first_of(
                asyncio.create_task(self._stop.wait()),
                asyncio.create_task(self._reload_when_told()),
                asyncio.create_task(self._mark_answers()),
                asyncio.create_task(self._tick()),
                asyncio.create_task(self._cover_intakes()),
                rest,
                *intakes,
            )
            await self._finish()
        finally:
            self._end()
            rest.cancel()
            await asyncio.wait({rest})
            self._reserve.close()
        self._directory.remove_state()
        return EXIT_KILLED if self._is_killed else 0

    async def _run_rest(self) -> None:
        """Store and admin port, once every intake takes deliveries or has had the time for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._plan.patience.head_start_s):
                await self._is_past_head_start.wait()
        if self._stop.is_set():
            return
        storing = self._store.start()
        admin = await asyncio.to_thread(admin_room)
        served = admin(self._readiness, self._counts, self._settings, self._metrics)
        listener = await served.serve(self._sockets.admin)
        try:
            await storing
        finally:
            await listener.close()

    @property
    def _children(self) -> list[Child]:
        return [*self._intakes, self._store]

    def _child(self, role: Role) -> Child:
        return Child(
            role, self._settings, self._metrics, self._changed, self._plan.patience, reserve=self._reserve
        )

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for stopping in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stopping, self._told_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)

    def _told_to_stop(self) -> None:
        if self._stop.is_set():
            self._end()
            self._is_killed = True
        self._stop.set()
        self._is_past_head_start.set()

    def _end(self) -> None:
        for child in self._children:
            child.end()

    async def _finish(self) -> None:
        """Stop the store first and the intakes last: the port is served until there is nothing left to do."""
        notify(self._plan.environ, "STOPPING=1")
        structlog.get_logger().info("stopping")
        grace_s = self._settings.limits.stop_grace_s + KILL_MARGIN_S
        await asyncio.gather(*(intake.seal() for intake in self._intakes))
        await self._store.stop(grace_s)
        self._sockets.api.close()  # refuse questions at once: nobody will answer them
        self._sockets.take_no_more()
        await asyncio.gather(*(intake.stop(grace_s) for intake in self._intakes))
        self._summary.log(self._counted())
        structlog.get_logger().info("stopped")

    async def _reload_when_told(self) -> None:
        while True:
            await self._hangup.wait()
            self._hangup.clear()
            await self._reload()

    async def _reload(self) -> None:
        """Take over what can be taken over."""
        log = structlog.get_logger()
        notify(self._plan.environ, reloading())
        try:
            loaded = self._plan.sources.load()
            new = reloaded(self._settings, self._comparable(loaded.settings))
        except OperatorError as reason:
            self._metrics.add("reloads", outcome="refused")
            log.error("configuration not reloaded; the old one stays in force", why=in_one_line(reason))
        else:
            self._metrics.add("reloads", outcome="taken")
            self._settings = new.settings
            self._metrics.begin([drain.name for drain in new.settings.drain])
            await asyncio.gather(*(child.reload(new.settings) for child in self._children))
            log.info("configuration reloaded", changed=new.changed, at_next_start=new.waiting)
        notify(self._plan.environ, "READY=1")

    def _comparable(self, new: Settings) -> Settings:
        """With the certificate and the addresses that the same words gave at the start."""
        said = self._plan.loaded.settings
        bound = {
            key: getattr(self._settings, key)
            for key in ("listen", "admin_listen", "api_listen")
            if getattr(new, key) == getattr(said, key)
        }
        return msgspec.structs.replace(with_certificate(new, self._directory.path), **bound)

    def _changed(self) -> None:
        """Note that a process began, is ready, or ended."""
        self._is_changed.set()
        self._write_state()
        if not self._is_announced and self._readiness().ready:
            self._is_announced = True
            self._is_past_head_start.set()
            notify(self._plan.environ, "READY=1")
            structlog.get_logger().info("ready", **self._ready_fields())

    def _ready_fields(self) -> dict[str, object]:
        """Return what an operator wants to know of a receiver that has just started."""
        settings, file = self._settings, self._plan.sources.file()
        return {
            "version": __version__,
            **self._state().urls,
            "intakes": settings.intakes,
            "store": settings.store.url,
            "data_dir": str(self._directory.path.absolute()),
            "config": str(file.absolute()) if file else "none",
            "drains": [f"{drain.name} {drain.path}" for drain in settings.drain],
        }

    def _state(self) -> State:
        addresses = {
            "listen": parse_address(self._settings.listen),
            "admin": parse_address(self._settings.admin_listen),
            "api": parse_address(self._settings.api_listen),
        }
        scheme = {"listen": "https" if self._settings.tls.cert_file else "http"}
        return State(
            **{name: str(address) for name, address in addresses.items()},
            urls={
                name: f"{scheme.get(name, 'http')}://{address.to_connect}"
                for name, address in addresses.items()
            },
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
        if not all(child.pid for child in self._children):
            return
        try:
            with self._reserve.lent():
                self._directory.write_state(self._state())
        except OSError as reason:
            self._is_state_written = False
            logs.limited.error("state", "receiver.json cannot be written", error=reason.strerror)
            return
        if not self._is_state_written:
            self._is_state_written = True
            structlog.get_logger().info("receiver.json is written again")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._last_good.look(self._settings.tls)
            self._reserve.refill()
            if not self._is_state_written:
                self._write_state()
            self._is_changed.set()
            logs.limited.flush()

    async def _cover_intakes(self) -> None:
        """Have the intakes that accept also accept for those that do not, and only as long as they do not."""
        while True:
            await self._is_changed.wait()
            self._is_changed.clear()
            accepting = [intake for intake in self._intakes if intake.is_accepting]
            down = {intake.listen_fd for intake in self._intakes} - {one.listen_fd for one in accepting}
            await asyncio.gather(*(intake.accept_for(frozenset(down)) for intake in accepting))

    async def _mark_answers(self) -> None:
        while True:
            await asyncio.sleep(MARK_S)
            self._budget.mark(self._counted())
            self._summary.log(self._counted())

    def _counted(self) -> list[Snapshot]:
        return [snapshot for child in self._children for snapshot in child.snapshots]

    def _counts(self) -> list[Snapshot]:
        """Of all processes."""
        for child in self._children:
            self._metrics.set("process_up", float(child.is_ready), process=child.name)
            self._metrics.set("process_ends_recent", child.ends.count, process=child.name)
        self._budget.tell(self._metrics, self._counted(), self._settings.budget)
        return [self._metrics.snapshot(), *self._counted()]
