"""Advice for an operator when a ClickHouse server refuses requests: a setting to check, the server's text.

Never: quotes a secret or a value of a row. It quotes only answers that the server gives before it reads a
row.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass

from receiver.engine.error_codes import TEMPORARY_STATUSES
from receiver.printable import harmless_text

QUOTED_CHARS_MAX = 200

LOGIN_REFUSED_CODES = frozenset({192, 193, 194, 516})
"""UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED."""
RIGHT_MISSING_CODES = frozenset({164, 497})
"""READONLY, ACCESS_DENIED."""
NATIVE_PORT = "is for clickhouse-client program"
"""Part of the answer that the native port gives to an HTTP request."""
NOT_CLICKHOUSE = "NOT_CLICKHOUSE"
"""Error name for a 200 response without a ClickHouse version."""

_BY_DRIVER = re.compile(r"(?:HTTP driver received|Received ClickHouse exception|Unexpected response to)")
_SERVER_TEXT = re.compile(r"(?:server response|server version query): ?(?P<text>.*)", re.DOTALL)
_CODE = re.compile(r"^Code: \d+\. DB::Exception: ")
_AFTER_MESSAGE = re.compile(r"\s\([A-Z_]{3,}\)(?:\s\(version .*)?$")
# An unclosed tag counts too, because the text may have been truncated within it.
_TAG = re.compile(r"<[^>]*(?:>|$)")


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials that are sent to the server."""

    user: str = ""
    password: str = ""

    def is_quoted_in(self, text: str) -> bool:
        """Return whether the text contains the password, in plain text or in its HTTP Basic encoding."""
        basic_auth = b64encode(f"{self.user}:{self.password}".encode()).decode()
        # An empty password would be found in every text.
        return bool(self.password) and (self.password in text or basic_auth in text)


def advice_on(code: int | None, name: str, status: int | None, text: str, login: Login) -> str:
    """Return the setting to check, with the server's text; empty if the answer suggests no setting.

    `status`: HTTP status of an answer that is not from ClickHouse. A temporary status comes from a proxy.
    """
    server_text = quoted(text, login)
    suffix = f"; the server answered: {server_text}" if server_text else ""
    if code in LOGIN_REFUSED_CODES:
        expectation = "expected the user in store.url and its password in store.password"
        return f"user '{login.user}' is refused; {expectation}{suffix}"
    if code in RIGHT_MISSING_CODES:
        return f"user '{login.user}' (store.url) lacks a right{suffix}"
    if NATIVE_PORT in text:
        return f"this is ClickHouse's native port; expected its HTTP port in store.url: 8123 or 8443{suffix}"
    is_foreign = status is not None and status not in TEMPORARY_STATUSES
    if code is None and (is_foreign or name == NOT_CLICKHOUSE):
        return f"this is not ClickHouse's answer; expected its HTTP interface in store.url{suffix}"
    return ""


def quoted(text: str, login: Login) -> str:
    """Return the server's text in quotes, truncated to one short line; empty if there is none."""
    if _BY_DRIVER.match(text):
        match = _SERVER_TEXT.search(text)
        text = match["text"].strip("'") if match else ""
    # Nothing is quoted then: cutting the password out could leave a part of it.
    if login.is_quoted_in(text):
        return ""
    line = " ".join(_TAG.sub(" ", text.partition("\n\n")[0]).split())
    line = _AFTER_MESSAGE.sub("", _CODE.sub("", line))
    short = line if len(line) <= QUOTED_CHARS_MAX else f"{line[:QUOTED_CHARS_MAX]}…"
    return f'"{harmless_text(short)}"' if short else ""
