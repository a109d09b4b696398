"""Parsers of HOST:PORT addresses and store URLs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import quote, unquote, urlsplit

from receiver.errors import OperatorError
from receiver.settings import Settings

PORT_MAX = 65_535
CLICKHOUSE = "api.clickhouse_listen"
"""The only listen address that may be empty: the port is then off."""

_HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            # Any other name counts as public: what it resolves to may change after the check.
            return self.host == "localhost"

    @property
    def to_connect(self) -> Address:
        """The address for a client on this machine: loopback instead of a wildcard."""
        loopback_of = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound
        return Address(loopback_of.get(self.host, self.host), self.port)


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`. Raises `OperatorError`."""
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        raise OperatorError(f"is '{text}'; expected HOST:PORT, for example 127.0.0.1:4318 or [::1]:4318")
    port = int(match.group(3))
    if port > PORT_MAX:
        raise OperatorError(f"has port {port}; expected 0 to {PORT_MAX}")
    return Address(match.group(1) or match.group(2), port)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """URL of a ClickHouse server's HTTP interface."""

    secure: bool
    host: str
    port: int
    user: str
    """Empty: the server's default user."""
    password: str
    database: str
    """Empty: `store.database`."""

    def without_password(self) -> str:
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = f"/{self.database}" if self.database else ""
        return f"http{'s' if self.secure else ''}://{user}{host}:{self.port}{path}"


_STORE_FORMS = "expected 'embedded' or http(s)://user@host:port/database"
_NATIVE_PORT = re.compile(r":(9000|9440)(?:/|$)")
DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Allowed names of a database."""
CLUSTER = re.compile(r"[A-Za-z0-9_.-]+")
"""Allowed names of a cluster and of a storage policy: they become parts of statements, in quotes."""


def parse_store_url(text: str) -> StoreUrl | None:
    """Parse the store's URL; None: embedded. `OperatorError` never quotes it: it may hold a password."""
    if text == "embedded":
        return None
    try:
        parts = urlsplit(text)
        # Parsed inside the `try`, because a port that is no number raises only when it is read.
        port = parts.port
    except ValueError as error:
        raise OperatorError(f"is not a URL; {_STORE_FORMS}") from error
    if parts.scheme not in ("http", "https") and (native := _NATIVE_PORT.search(text)):
        raise OperatorError(
            f"has port {native[1]}, which is ClickHouse's native port; {_STORE_FORMS}, whose port is 8123, "
            "or 8443 with https"
        )
    if get_close_matches(text, ["embedded"]):
        raise OperatorError("is not a URL; did you mean 'embedded'?")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OperatorError(f"has scheme '{parts.scheme}', or no host; {_STORE_FORMS}")
    if port == 0:
        raise OperatorError(f"has port 0; expected 1 to {PORT_MAX}, or no port")
    if parts.query or parts.fragment:
        raise OperatorError(f"has a query or fragment; {_STORE_FORMS}")
    return StoreUrl(
        secure=parts.scheme == "https",
        host=parts.hostname,
        port=port or (8443 if parts.scheme == "https" else 8123),
        # Percent-encoding is the only way to write @ or / in a password here.
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=_database(parts.path),
    )


def cluster_problems(settings: Settings) -> Iterator[str]:
    store = settings.store
    for key, name in (("cluster", store.cluster), ("storage_policy", store.storage_policy)):
        if name and not CLUSTER.fullmatch(name):
            yield f"store.{key} is {name!r}; expected letters, digits and . _ -"


def listen_addresses(settings: Settings) -> dict[str, str]:
    """Return the listen address of each port that is on, by the name of its setting."""
    addresses = {
        "listen": settings.listen,
        "admin_listen": settings.admin_listen,
        "api_listen": settings.api_listen if settings.api.enabled else "",
        CLICKHOUSE: settings.api.clickhouse_listen,
    }
    optional = ("api_listen", CLICKHOUSE)
    return {name: address for name, address in addresses.items() if address or name not in optional}


def is_beyond_loopback(listen: str) -> bool:
    """Whether other machines can connect to it. False for an invalid address, which the checks report."""
    try:
        return not parse_address(listen).is_loopback
    except OperatorError:
        return False


def _database(path: str) -> str:
    name = path.strip("/")
    if name and not DATABASE.fullmatch(name):
        raise OperatorError(f"names the database '{name}'; expected letters, digits and underscores")
    return name
