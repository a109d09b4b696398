"""Channel between the supervisor and one child: JSON lines over a socket pair.

    supervisor → child   Start  Reload  AcceptFor  Seal  ShowRefusals  Stop
    child → supervisor   Ready  Report (every second)  Sealed  Failed  Stopped

Invariant: a closed channel is a message too. A child that reads `None` has lost its supervisor and exits as
if it had received `Stop`; a supervisor that reads `None` has lost the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Generic, Self, TypeVar

import msgspec

from receiver.metrics import Snapshot
from receiver.refusals import Refusal, RefusalReport
from receiver.settings import MIB, Settings

SEND_S = 5.0
REPORT_S = 1.0
"""Interval of a child's reports. As often, it checks that its supervisor still runs."""
ORPHAN_GRACE_S = 8.0
"""Time in which a child whose supervisor was killed may finish its work."""
ORPHAN_EXIT_S = ORPHAN_GRACE_S + 2.0
"""Time after which the kernel ends such a child, even if it hangs."""
CHILDREN_WAIT_S = REPORT_S + ORPHAN_EXIT_S + 4.0
"""Time that the next supervisor waits for such children; the rest is for a busy machine."""
LINE_BYTES_MAX = 16 * MIB
"""Limit of one message; the largest is a `Start` with many drains, or a `Report` with many series."""


class Pems(msgspec.Struct, frozen=True):
    """Contents of the last usable certificate files, for a process that starts while they are invalid."""

    cert: bytes
    key: bytes
    client_ca: bytes

    def __repr__(self) -> str:
        """Hide the private key."""
        return "Pems(...)"


class Start(msgspec.Struct, frozen=True, tag=True):
    """First message to a child, sent once. Starts the work."""

    name: str
    """Process name, `intake-0` or `store`: its label in metrics and logs."""
    settings: Settings
    listen_fd: int
    """The listening socket, inherited: the drain endpoint's for an intake, the API's for the store."""
    start_ordinal: int
    """Number of earlier starts of this process."""
    last_good: Pems | None = None
    """Last usable certificate, for an intake that uses TLS."""
    sibling_fds: tuple[int, ...] = ()
    """Other inherited sockets: those of all intakes, or for the store that of the ClickHouse endpoint."""
    origins: dict[str, str] = {}
    """Origin of each setting: see `receiver.config.load.Loaded`."""


class Reload(msgspec.Struct, frozen=True, tag=True):
    """New settings. Those that can change at run time take effect at once."""

    settings: Settings
    origins: dict[str, str] = {}


class AcceptFor(msgspec.Struct, frozen=True, tag=True):
    """To an intake: also accept from these sockets, because their intakes do not accept."""

    listen_fds: tuple[int, ...]
    """Descriptors that every intake inherits. The intake stops accepting from sockets that are not listed."""


class Seal(msgspec.Struct, frozen=True, tag=True):
    """To an intake: seal the open segment now, then send `Sealed`, because the store is about to stop."""


class ShowRefusals(msgspec.Struct, frozen=True, tag=True):
    """To the store process: the refusals of all processes, after each change."""

    report: RefusalReport


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Finish the work in flight, send `Stopped` and exit."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The process is ready to work."""


class Report(msgspec.Struct, frozen=True, tag=True):
    """Metrics and health, sent every second."""

    metrics: Snapshot
    health: dict[str, str]
    """Problem of each check, by its name; empty if the check passes."""
    refusals: tuple[Refusal, ...] = ()
    """Those since the last report."""


class Sealed(msgspec.Struct, frozen=True, tag=True):
    """All deliveries acknowledged before `Seal` are in sealed segments, unless the disk failed."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot work and exits. The supervisor logs it, because it counts the failures."""

    error: str
    raised_at: tuple[str, ...] = ()
    """Last frames of the traceback, if the exception was unexpected."""


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """All work is finished; the process exits now."""


ToChild = Start | Reload | AcceptFor | Seal | ShowRefusals | Stop
ToSupervisor = Ready | Report | Sealed | Failed | Stopped

Incoming = TypeVar("Incoming")
Outgoing = TypeVar("Outgoing")


class _End(Generic[Incoming, Outgoing]):
    """One end of the channel: reads one kind of message, writes the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: msgspec.json.Decoder[Incoming],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = decoder
        self._encoder = msgspec.json.Encoder()

    async def receive(self) -> Incoming | None:
        """Wait for the next message. Return None if the other end has closed."""
        try:
            line = await self._reader.readuntil(b"\n")
        # An incomplete last line is not a message: the other end died while it was writing.
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return self._decoder.decode(line)

    async def send(self, message: Outgoing) -> None:
        """Send one message. Give up silently if the other end is closed (`receive` reports that) or hangs."""
        # RuntimeError: uvloop raises it for a closed transport.
        with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):
            self._writer.write(self._encoder.encode(message) + b"\n")
            # A process that hangs stops reading; the other must go on with its own work.
            async with asyncio.timeout(SEND_S):
                await self._writer.drain()

    def send_at_once(self, message: Outgoing) -> bool:
        """Send one message without waiting. Return False if the other end has yet to read an earlier one."""
        if self._writer.transport.get_write_buffer_size():
            return False
        with contextlib.suppress(RuntimeError):
            self._writer.write(self._encoder.encode(message) + b"\n")
        return True

    async def close(self) -> None:
        """Close this end; the other end's `receive` returns None."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class Channel(_End[ToChild, ToSupervisor]):
    """The child's end."""

    @classmethod
    async def from_fd(cls, fd: int) -> Self:
        """Open the channel on an inherited file descriptor."""
        reader, writer = await _streams(socket.socket(fileno=fd))
        return cls(reader, writer, msgspec.json.Decoder(ToChild))


class ChildChannel(_End[ToSupervisor, ToChild]):
    """The supervisor's end."""

    @classmethod
    async def from_socket(cls, end: socket.socket) -> Self:
        """Open the channel on one end of a socket pair."""
        reader, writer = await _streams(end)
        return cls(reader, writer, msgspec.json.Decoder(ToSupervisor))


async def _streams(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    end.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
    # The default limit of 64 KiB is less than a `Start` with many drains.
    return await asyncio.open_connection(sock=end, limit=LINE_BYTES_MAX)
