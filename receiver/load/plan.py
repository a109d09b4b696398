"""What was asked for, checked: a URL, headers, secrets and rates become a plan, a target and a recipe."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from receiver.errors import OperatorError

PORTS = {"http": 80, "https": 443}
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*([\x21-\x7e]?[\t\x20-\x7e]*)")


class Url(NamedTuple):
    """Where requests go."""

    host: str
    port: int
    path: str
    is_tls: bool

    @property
    def authority(self) -> str:
        """As `Host` says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Read the endpoint's URL; no path is that of OTLP."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as reason:
        raise OperatorError(
            "URL cannot be read; expected one like http://127.0.0.1:4318/v1/traces"
        ) from reason
    if parts.scheme not in PORTS or not host or parts.username:
        raise OperatorError(
            f"URL has scheme '{parts.scheme}' and {'a' if host else 'no'} host; expected "
            "http(s)://HOST[:PORT][/PATH], without a user"
        )
    path = parts.path if parts.path not in {"", "/"} else "/v1/traces"
    query = f"?{parts.query}" if parts.query else ""
    return Url(host, port or PORTS[parts.scheme], path + query, parts.scheme == "https")


def parse_header(text: str) -> tuple[str, str]:
    """Read `Name: value`."""
    found = _HEADER.fullmatch(text.strip())
    if not found:
        raise OperatorError("--header cannot be read; expected 'Name: value' in printable ASCII")
    return found[1], found[2]


def secret_in(file: str, option: str) -> str:
    """Read a secret, without the line's end."""
    try:
        secret = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as reason:
        raise OperatorError(f"{option} '{file}' cannot be read; expected a file of text") from reason
    if not secret:
        raise OperatorError(f"{option} '{file}' is empty; expected a secret")
    return secret


def tls_context(*, ca_file: str | None, is_insecure: bool) -> ssl.SSLContext:
    """Trust the system's authorities, one of the operator's own, or anybody."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as reason:
        raise OperatorError(f"--ca '{ca_file}' cannot be used; expected certificates in PEM") from reason
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
