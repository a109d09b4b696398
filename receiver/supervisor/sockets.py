"""Listening sockets, held open here: while a process is replaced, connections wait in the backlog.

One `SO_REUSEPORT` socket per intake, or systemd's: `listen`, `admin` and `api` by `FileDescriptorName=`, a
socket with another name belongs to the drain endpoint.

The sockets are closed when the supervisor exits, after everything else. When a socket is closed, the kernel
resets the connections in its queue. So without systemd, shortly before the exit, the sockets take no new
connections and the intakes accept all that are waiting; systemd's sockets stay open, for the next start.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from receiver.config.addresses import Address, parse_address
from receiver.errors import CommandFailed, OperatorError
from receiver.settings import Settings

BACKLOG = 4_096
"""Connections that wait for an intake; the kernel cuts it to net.core.somaxconn."""
SYSTEMD_FD_FIRST = 3
SO_ATTACH_FILTER = 26
"""Of Linux; Python has no name for it."""
NO_NEW_CONNECTION = (
    (0x30, 0, 0, 13),  # the flags of the TCP header
    (0x54, 0, 0, 0x12),  # SYN and ACK of them
    (0x15, 0, 1, 0x02),  # SYN alone asks for a connection:
    (0x06, 0, 0, 0),  # unheard
    (0x06, 0, 0, 0xFFFF_FFFF),  # whatever else, whole
)
"""A BPF program (code, jump if true, jump if false, value). Handshakes under way are finished."""


@dataclass(frozen=True)
class Sockets:
    """Everything we listen on."""

    drain: tuple[socket.socket, ...]
    """One per intake; several intakes may share one."""
    admin: socket.socket
    api: socket.socket
    drain_is_ours: bool
    """Not systemd's, which keeps listening when we are gone."""

    def take_no_more(self) -> None:
        """Ignore requests for new connections to the drain endpoint; the clients' kernels repeat them."""
        if self.drain_is_ours:
            for one in self.drain:
                _ignore_new(one)

    def close(self) -> None:
        """Close all of them."""
        for listening in (*self.drain, self.admin, self.api):
            listening.close()


def open_sockets(settings: Settings, environ: Mapping[str, str]) -> Sockets:
    """Take systemd's sockets, bind what it did not give. Raises `OperatorError` naming all that failed."""
    given = from_systemd(environ)
    wanted: tuple[Callable[[], list[socket.socket]], ...] = (
        lambda: given.get("listen") or bind_shared("listen", settings.listen, settings.intakes),
        lambda: [_only("admin", given) or bind("admin_listen", settings.admin_listen)],
        lambda: [_only("api", given) or bind("api_listen", settings.api_listen)],
    )
    opened: list[list[socket.socket]] = []
    problems: list[str] = []
    for bound in wanted:
        try:
            opened.append(bound())
        except OperatorError as reason:
            problems.append(str(reason))
    if problems:
        for one in chain(*opened):
            one.close()
        raise CommandFailed("\n".join(problems))
    drain, (admin,), (api,) = opened
    return Sockets(
        tuple(drain[place % len(drain)] for place in range(settings.intakes)),
        admin,
        api,
        drain_is_ours="listen" not in given,
    )


def _ignore_new(listening: socket.socket) -> None:
    code = b"".join(struct.pack("HBBI", *step) for step in NO_NEW_CONNECTION)
    program = ctypes.create_string_buffer(code, len(code))
    where = struct.pack("HP", len(NO_NEW_CONNECTION), ctypes.addressof(program))
    with suppress(OSError):  # a kernel that filters nothing: who comes in the last moment sees a reset
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, where)


def bind_shared(key: str, listen: str, count: int) -> list[socket.socket]:
    """So many sockets on one address; the kernel spreads connections over them."""
    first = bind(key, listen, is_shared=True)
    address = address_of(first)
    return [first, *(_bound(key, address, is_shared=True) for _ in range(count - 1))]


def bind(key: str, listen: str, *, is_shared: bool = False) -> socket.socket:
    """One socket. Sharing a port with a stranger would lose traces, so nobody else may listen there."""
    address = parse_address(listen)
    if is_shared and address.port:
        _bound(key, address, is_shared=False, is_listening=False).close()
    return _bound(key, address, is_shared=is_shared)


def require_free(key: str, listen: str) -> None:
    """Raise `OperatorError` unless this address can be bound now. Nothing listens on it meanwhile."""
    _bound(key, parse_address(listen), is_shared=False, is_listening=False).close()


def address_of(listening: socket.socket) -> Address:
    """Where it is bound."""
    host, port = listening.getsockname()[:2]
    return Address(host, port)


def from_systemd(environ: Mapping[str, str]) -> dict[str, list[socket.socket]]:
    """The sockets systemd passed, by name."""
    found: dict[str, list[socket.socket]] = defaultdict(list)
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return found
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    for place in range(int(environ.get("LISTEN_FDS", "0"))):
        name = names[place] if place < len(names) else ""
        found[name if name in ("admin", "api") else "listen"].append(_inherited(SYSTEMD_FD_FIRST + place))
    return found


def _inherited(fd: int) -> socket.socket:
    try:
        taken = socket.socket(fileno=fd)
        is_listening = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as reason:
        raise OperatorError(f"descriptor {fd} from systemd is no socket: {reason.strerror}") from reason
    if taken.family not in (socket.AF_INET, socket.AF_INET6) or not is_listening:
        raise OperatorError(
            f"descriptor {fd} from systemd listens on no TCP port; expected ListenStream=HOST:PORT"
        )
    taken.set_inheritable(False)
    return taken


def _only(name: str, given: Mapping[str, list[socket.socket]]) -> socket.socket | None:
    sockets = given.get(name, [])
    if len(sockets) > 1:
        raise OperatorError(f"systemd passed {len(sockets)} sockets named '{name}'; expected one")
    return sockets[0] if sockets else None


def _bound(key: str, address: Address, *, is_shared: bool, is_listening: bool = True) -> socket.socket:
    family, sockaddr = _resolved(key, address)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and address.host == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(sockaddr)
        if is_listening:
            made.listen(BACKLOG)
    except OSError as reason:
        made.close()
        raise OperatorError(f"{key} = '{address}' cannot be bound: {_why(reason)}") from reason
    return made


def _resolved(key: str, address: Address) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """IPv4 first: `localhost` is what clients that try both will find."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as reason:
        raise OperatorError(f"{key} = '{address}' cannot be resolved: {reason.strerror}") from reason
    family, _, _, _, sockaddr = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, sockaddr


def _why(reason: OSError) -> str:
    if reason.errno == errno.EADDRINUSE:
        return "another program listens there; expected a free port, or port 0 to pick one"
    if reason.errno == errno.EACCES:
        return "not allowed; expected a port above 1023, or CAP_NET_BIND_SERVICE"
    return str(reason.strerror)
