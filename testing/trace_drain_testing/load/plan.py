"""Parsers of command-line values: URL, headers, secrets, TLS settings."""

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
    host: str
    port: int
    path: str
    is_tls: bool

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse the endpoint's URL; the default path is `/v1/traces`."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise OperatorError(
            "URL is malformed; expected a URL like http://127.0.0.1:4318/v1/traces"
        ) from error
    # A user in the URL would be ignored, so it is refused.
    if parts.scheme not in PORTS or not host or parts.username:
        raise OperatorError(
            f"URL has scheme '{parts.scheme}' and {'a' if host else 'no'} host; expected "
            "http(s)://HOST[:PORT][/PATH], without a user"
        )
    path = parts.path if parts.path not in {"", "/"} else "/v1/traces"
    query = f"?{parts.query}" if parts.query else ""
    return Url(host, port or PORTS[parts.scheme], path + query, parts.scheme == "https")


def parse_header(text: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(text.strip())
    if not match:
        raise OperatorError("--header is malformed; expected 'Name: value' in printable ASCII")
    return match[1], match[2]


def read_secret(file: str, option: str) -> str:
    """Read a secret from a file, and strip surrounding white space."""
    try:
        secret = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{option} '{file}' cannot be read; expected a text file") from error
    if not secret:
        raise OperatorError(f"{option} '{file}' is empty; expected a secret")
    return secret


def tls_context(*, ca_file: str | None, is_insecure: bool) -> ssl.SSLContext:
    """Return a context that trusts the system's CAs, the given CA, or any certificate."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise OperatorError(f"--ca '{ca_file}' cannot be used; expected certificates in PEM") from error
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
