"""The channel between the supervisor and one child: JSON lines over a socket pair.

    supervisor → child   Start  Reload  AcceptFor  Seal  Stop
    child → supervisor   Ready  Report (every second)  Sealed  Failed  Stopped

Keeps: the channel's end is news too. A child that reads `None` has lost its supervisor and finishes as if
stopped; a supervisor that reads `None` has lost the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Generic, Self, TypeVar

import msgspec

from receiver.metrics import Snapshot
from receiver.settings import MIB, Settings

SEND_S = 5.0
LINE_BYTES_MAX = 16 * MIB
"""Of one message; the largest is a `Start` with many drains, or a `Report` with many series."""


class Pems(msgspec.Struct, frozen=True):
    """A certificate that was good, as it lay in its files: for a process that finds them broken."""

    cert: bytes
    key: bytes
    client_ca: bytes

    def __repr__(self) -> str:
        """Not the key."""
        return "Pems(...)"


class Start(msgspec.Struct, frozen=True, tag=True):
    """Begin. The first message, sent once."""

    name: str
    """Of the process: `intake-0`, `store`. Its label in metrics and logs."""
    settings: Settings
    listen_fd: int
    """The listening socket, inherited: the drain endpoint's for an intake, the API's for the store."""
    start_ordinal: int
    """How often this process has been started before, from 0."""
    last_good: Pems | None = None
    """For an intake that speaks TLS."""


class Reload(msgspec.Struct, frozen=True, tag=True):
    """Use these settings from now on, where they can change while running."""

    settings: Settings


class AcceptFor(msgspec.Struct, frozen=True, tag=True):
    """To an intake: accept from these sockets too, because the intakes they belong to do not."""

    listen_fds: tuple[int, ...]
    """Inherited by every intake. The intake stops accepting from those that are no longer listed."""


class Seal(msgspec.Struct, frozen=True, tag=True):
    """To an intake: seal the open segment now, then send `Sealed`, because the store is about to stop."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Finish what is in flight, then say `Stopped` and end."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The process does its work now."""


class Report(msgspec.Struct, frozen=True, tag=True):
    """How it goes, every second."""

    metrics: Snapshot
    health: dict[str, str]
    """What was checked → `""` when fine, or the reason why not."""


class Sealed(msgspec.Struct, frozen=True, tag=True):
    """What was acknowledged before `Seal` is in sealed segments, unless the disk refuses."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot work and ends. The supervisor logs it: it knows how often that happens."""

    error: str
    raised_at: tuple[str, ...] = ()
    """Of an unexpected exception."""


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """Everything is finished; the process ends now."""


ToChild = Start | Reload | AcceptFor | Seal | Stop
ToSupervisor = Ready | Report | Sealed | Failed | Stopped

Incoming = TypeVar("Incoming")
Outgoing = TypeVar("Outgoing")


class _End(Generic[Incoming, Outgoing]):
    """One end: reads one kind of messages, writes the other."""

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
        """Wait for the next message. `None`: the other end is gone."""
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return self._decoder.decode(line)

    async def send(self, message: Outgoing) -> None:
        """Send one message. The other end may be gone, as `receive` tells, or hang: it is not waited for."""
        with contextlib.suppress(ConnectionError, TimeoutError, RuntimeError):  # uvloop's word for closed
            self._writer.write(self._encoder.encode(message) + b"\n")
            async with asyncio.timeout(SEND_S):
                await self._writer.drain()

    async def close(self) -> None:
        """Close this end; the other end's `receive` gives `None`."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class Channel(_End[ToChild, ToSupervisor]):
    """The child's end."""

    @classmethod
    async def from_fd(cls, fd: int) -> Self:
        """Take over the inherited descriptor."""
        reader, writer = await _streams(socket.socket(fileno=fd))
        return cls(reader, writer, msgspec.json.Decoder(ToChild))


class ChildChannel(_End[ToSupervisor, ToChild]):
    """The supervisor's end."""

    @classmethod
    async def from_socket(cls, end: socket.socket) -> Self:
        """Take over one end of a socket pair."""
        reader, writer = await _streams(end)
        return cls(reader, writer, msgspec.json.Decoder(ToSupervisor))


async def _streams(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    end.setblocking(False)  # noqa: FBT003 - the standard library takes it by position
    return await asyncio.open_connection(sock=end, limit=LINE_BYTES_MAX)
