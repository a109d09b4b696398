"""Listening sockets of the supervisor: connections wait in their backlog while a process is replaced.

There is one `SO_REUSEPORT` socket per intake, or systemd passes sockets named `listen`, `admin`, `api` and
`clickhouse` by `FileDescriptorName=`. A socket with another name belongs to the drain endpoint.

The supervisor closes the sockets last, because the kernel resets connections that are still in the queue of a
closed socket. Shortly before the exit, the sockets ignore new connections, and the intakes accept those in
the queue. Sockets from systemd stay open for the next start.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

import msgspec

from receiver.config.addresses import CLICKHOUSE, Address, listen_addresses, parse_address
from receiver.config.checks import problems_of
from receiver.errors import CommandFailed, OperatorError
from receiver.logs import limited
from receiver.settings import Settings

BACKLOG = 4_096
"""Length of the accept queue; the kernel limits it to net.core.somaxconn."""
NAME_OF = {"listen": "listen", "admin_listen": "admin", "api_listen": "api", CLICKHOUSE: "clickhouse"}
"""Name of each port in `receiver.json` and for systemd, by its setting."""
SYSTEMD_FD_FIRST = 3
SO_ATTACH_FILTER = 26
"""Linux socket option for which Python has no constant."""
IGNORE_SYN = (
    (0x30, 0, 0, 13),  # the flags of the TCP header
    (0x54, 0, 0, 0x12),  # keep only SYN and ACK
    (0x15, 0, 1, 0x02),  # SYN without ACK requests a new connection:
    (0x06, 0, 0, 0),  # drop it
    (0x06, 0, 0, 0xFFFF_FFFF),  # pass every other packet
)
"""BPF program (code, jump if true, jump if false, value). Handshakes in progress are completed."""


@dataclass(frozen=True)
class Sockets:
    drain: tuple[socket.socket, ...]
    """Sockets of the drain endpoint, one per intake. Several intakes may share a socket from systemd."""
    admin: socket.socket
    drain_is_ours: bool
    """Whether we created these sockets. Sockets from systemd stay open after we exit."""
    api: socket.socket | None = None
    """Socket of the API; `None` if it is off."""
    clickhouse: socket.socket | None = None
    """Socket of the ClickHouse endpoint; `None` if it is off."""

    @property
    def of_store(self) -> tuple[socket.socket, ...]:
        """Return the sockets of the store process: that of the API first."""
        return tuple(opened for opened in (self.api, self.clickhouse) if opened)

    def stop_new_connections(self) -> None:
        """Ignore new connections to the drain endpoint, so that the clients' kernels try again later."""
        # The filter stays with the socket, and systemd passes the same socket to the next start.
        if self.drain_is_ours:
            for listening in self.drain:
                _ignore_new_connections(listening)

    def close(self) -> None:
        """Close all sockets."""
        for listening in (*self.drain, self.admin, *self.of_store):
            listening.close()


def open_sockets(settings: Settings, environ: Mapping[str, str]) -> Sockets:
    """Use systemd's sockets and bind the others. Raises `CommandFailed` listing every failure."""
    from_manager = from_systemd(environ)
    opened: dict[str, list[socket.socket]] = {}
    problems: list[str] = []
    # All are tried, so that one start reports every port that is in use.
    for key, listen in listen_addresses(settings).items():
        name = NAME_OF[key]
        try:
            if name == "listen":
                opened[name] = from_manager.get(name) or bind_shared(key, listen, settings.intakes)
            else:
                opened[name] = [_single_socket(name, from_manager) or bind(key, listen)]
        except OperatorError as error:
            problems.append(str(error))
    if problems:
        for listening in chain(*opened.values()):
            listening.close()
        raise CommandFailed("\n".join(problems))
    drain = opened.pop("listen")
    return Sockets(
        # Fewer sockets than intakes: the kernel wakes any intake that shares the socket.
        tuple(drain[index % len(drain)] for index in range(settings.intakes)),
        drain_is_ours="listen" not in from_manager,
        **{name: listening for name, (listening,) in opened.items()},
    )


def _ignore_new_connections(listening: socket.socket) -> None:
    code = b"".join(struct.pack("HBBI", *step) for step in IGNORE_SYN)
    # The kernel copies the program, so this buffer need not outlive the call.
    program = ctypes.create_string_buffer(code, len(code))
    filter_header = struct.pack("HP", len(IGNORE_SYN), ctypes.addressof(program))
    with suppress(OSError):  # Without the filter, connections that arrive in the last moment are reset.
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_header)


def bind_shared(key: str, listen: str, count: int) -> list[socket.socket]:
    """Bind `count` sockets to one address; the kernel distributes connections among them."""
    # Port 0 becomes a number at the first bind; the other sockets must use the same number.
    first = bind(key, listen, is_shared=True)
    address = address_of(first)
    # `_bind`, because the check for other programs in `bind` would find our own first socket.
    return [first, *(_bind(key, address, is_shared=True) for _ in range(count - 1))]


def bind(key: str, listen: str, *, is_shared: bool = False) -> socket.socket:
    """Bind one socket. Fails if another program listens there: a shared port would lose traces to it."""
    address = parse_address(listen)
    # SO_REUSEPORT would let the bind succeed although another program listens on the port.
    if is_shared and address.port:
        _bind(key, address, is_shared=False, is_listening=False).close()
    return _bind(key, address, is_shared=is_shared)


def require_free(key: str, listen: str) -> None:
    """Raise `OperatorError` unless this address can be bound. Does not listen on it."""
    _bind(key, parse_address(listen), is_shared=False, is_listening=False).close()


def address_of(listening: socket.socket) -> Address:
    """Return the address that a socket is bound to."""
    host, port = listening.getsockname()[:2]
    return Address(host, port)


def from_systemd(environ: Mapping[str, str]) -> dict[str, list[socket.socket]]:
    """Return the sockets that systemd passed, by name."""
    sockets: dict[str, list[socket.socket]] = defaultdict(list)
    # Inherited from a parent: the sockets were meant for that process, and the numbers are not ours.
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return sockets
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    # Names are optional in the protocol, so there may be fewer names than sockets.
    for index in range(int(environ.get("LISTEN_FDS", "0"))):
        name = names[index] if index < len(names) else ""
        port = name if name in NAME_OF.values() else "listen"
        sockets[port].append(_adopt_systemd_socket(SYSTEMD_FD_FIRST + index))
    return sockets


def _adopt_systemd_socket(fd: int) -> socket.socket:
    try:
        listening = socket.socket(fileno=fd)
        is_listening = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise OperatorError(f"descriptor {fd} from systemd is not a socket: {error.strerror}") from error
    if listening.family not in (socket.AF_INET, socket.AF_INET6) or not is_listening:
        raise OperatorError(
            f"descriptor {fd} from systemd is not a listening TCP socket; expected ListenStream=HOST:PORT"
        )
    # Children get exactly the sockets that `pass_fds` lists.
    listening.set_inheritable(False)
    return listening


def _single_socket(name: str, from_manager: Mapping[str, list[socket.socket]]) -> socket.socket | None:
    sockets = from_manager.get(name, [])
    if len(sockets) > 1:
        raise OperatorError(f"systemd passed {len(sockets)} sockets named '{name}'; expected one")
    return sockets[0] if sockets else None


def _bind(key: str, address: Address, *, is_shared: bool, is_listening: bool = True) -> socket.socket:
    family, sockaddr = _resolved(key, address)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier process in TIME_WAIT must not prevent a restart.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Accept IPv4 on the same socket, independently of the system's default.
        if family == socket.AF_INET6 and address.host == "::":
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(sockaddr)
        if is_listening:
            bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OperatorError(f"{key} = '{address}' cannot be bound: {_bind_error(error)}") from error
    return bound


def _resolved(key: str, address: Address) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """Resolve an address and prefer IPv4: clients that connect to `localhost` try both families."""
    try:
        candidates = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise OperatorError(f"{key} = '{address}' cannot be resolved: {error.strerror}") from error
    family, _, _, _, sockaddr = min(candidates, key=lambda candidate: candidate[0] != socket.AF_INET)
    return family, sockaddr


def _bind_error(reason: OSError) -> str:
    if reason.errno == errno.EADDRINUSE:
        return "another program listens there; expected a free port, or port 0 to pick one"
    if reason.errno == errno.EACCES:
        return "not allowed; expected a port above 1023, or CAP_NET_BIND_SERVICE"
    return str(reason.strerror)


RESERVED = 32
"""Starting a process needs 6 descriptors and keeps 1, so the reserve allows many starts."""


class DescriptorReserve:
    """Descriptors held open on /dev/null, so that a process can be replaced when no other is free.

    Invariant: no code awaits between taking descriptors from the reserve and refilling it, so no other code
    gets them.
    """

    def __init__(self) -> None:
        self._held: list[int] = []
        self.refill()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Free the reserve for the calls inside, which must not await, and refill it afterwards."""
        self.close()
        try:
            yield
        finally:
            self.refill()

    def refill(self) -> None:
        """Open descriptors until the reserve is full; log an error if none is left."""
        try:
            while len(self._held) < RESERVED:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            limited.error(
                "descriptors",
                "supervisor has no file descriptors left",
                error=error.strerror,
                action="replacements of processes use reserved descriptors; raise LimitNOFILE",
                reserve=len(self._held),
            )

    def close(self) -> None:
        """Free the reserve."""
        while self._held:
            with suppress(OSError):
                os.close(self._held.pop())


def with_bound_addresses(configured: Settings, settings: Settings, sockets: Sockets) -> Settings:
    """Return settings with the bound addresses. Sockets from systemd must pass the checks for settings."""
    addresses = {
        "listen": str(address_of(sockets.drain[0])),
        "admin_listen": str(address_of(sockets.admin)),
        "api_listen": str(address_of(sockets.api)) if sockets.api else configured.api_listen,
        CLICKHOUSE: str(address_of(sockets.clickhouse)) if sockets.clickhouse else "",
    }
    problems = problems_of(_replaced(configured, addresses))
    if problems:
        raise OperatorError("\n".join(["the sockets passed by systemd cannot be used:", *problems]))
    return _replaced(settings, addresses)


def with_addresses_of(running: Settings, configured: Settings, new: Settings) -> Settings:
    """Return new settings with the bound address of each port whose setting is that of the start."""
    # Port 0 was replaced by the bound port, which must not look like a changed setting.
    before, bound = listen_addresses(configured), listen_addresses(running)
    now = listen_addresses(new)
    return _replaced(new, {key: bound[key] for key in bound if now.get(key) == before[key]})


def addresses_by_name(settings: Settings) -> dict[str, Address]:
    return {NAME_OF[key]: parse_address(listen) for key, listen in listen_addresses(settings).items()}


def urls_by_name(settings: Settings) -> dict[str, str]:
    """Return the URL of each port that is on, for clients on this machine."""
    scheme = {"listen": "https"} if settings.tls.cert_file else {}
    return {
        name: f"{scheme.get(name, 'http')}://{address.to_connect}"
        for name, address in addresses_by_name(settings).items()
    }


def _replaced(settings: Settings, addresses: Mapping[str, str]) -> Settings:
    top = {key: address for key, address in addresses.items() if key != CLICKHOUSE}
    listen = addresses.get(CLICKHOUSE, settings.api.clickhouse_listen)
    api = msgspec.structs.replace(settings.api, clickhouse_listen=listen)
    return msgspec.structs.replace(settings, **top, api=api)
