"""Which setting is probably wrong when a ClickHouse server refuses us, and what it said.

Never: a secret, or a value of a row. Only answers that come before any row is looked at are quoted.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass

from receiver.logs import harmless_text
from receiver.storage.faults import PASSING_STATUSES

QUOTED_CHARS_MAX = 200

REFUSED_LOGIN = frozenset({192, 193, 194, 516})
"""UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED."""
LACKS_RIGHT = frozenset({164, 497})
"""READONLY, ACCESS_DENIED."""
NATIVE_PORT = "is for clickhouse-client program"
"""What the native port, whatever its number, answers to HTTP."""
NOT_CLICKHOUSE = "NOT_CLICKHOUSE"
"""The name of the trouble when a 200 has no version of ClickHouse in it."""

_BY_DRIVER = re.compile(r"(?:HTTP driver received|Received ClickHouse exception|Unexpected response to)")
_SERVER_TEXT = re.compile(r"(?:server response|server version query): ?(?P<text>.*)", re.DOTALL)
_CODE = re.compile(r"^Code: \d+\. DB::Exception: ")
_AFTER_MESSAGE = re.compile(r"\s\([A-Z_]{3,}\)(?:\s\(version .*)?$")
_TAG = re.compile(r"<[^>]*(?:>|$)")


@dataclass(frozen=True, slots=True)
class Login:
    """With what a server is asked."""

    user: str = ""
    password: str = ""

    def is_quoted_in(self, text: str) -> bool:
        """Whether the text holds the password, as it is or as HTTP sends it."""
        sent = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return bool(self.password) and (self.password in text or sent in text)


def advice_on(code: int | None, name: str, status: int | None, text: str, login: Login) -> str:
    """Return which setting to look at, with the server's words; empty: the answer points at no setting.

    `status` is that of an answer which is not ClickHouse's; those that pass by themselves are a proxy's.
    """
    words = quoted(text, login)
    says = f"; the server says: {words}" if words else ""
    if code in REFUSED_LOGIN:
        where = "expected the user in store.url and its password in store.password"
        return f"user '{login.user}' is refused; {where}{says}"
    if code in LACKS_RIGHT:
        return f"user '{login.user}' (store.url) lacks a right{says}"
    if NATIVE_PORT in text:
        return f"this is ClickHouse's native port; expected its HTTP port in store.url, as 8123 or 8443{says}"
    is_foreign = status is not None and status not in PASSING_STATUSES
    if code is None and (is_foreign or name == NOT_CLICKHOUSE):
        return f"this is not ClickHouse's answer; expected its HTTP interface in store.url{says}"
    return ""


def quoted(text: str, login: Login) -> str:
    """Return the server's own words in quotes, as one bounded line without the driver's; or nothing."""
    if _BY_DRIVER.match(text):
        found = _SERVER_TEXT.search(text)
        text = found["text"].strip("'") if found else ""
    if login.is_quoted_in(text):
        return ""
    words = " ".join(_TAG.sub(" ", text.partition("\n\n")[0]).split())
    words = _AFTER_MESSAGE.sub("", _CODE.sub("", words))
    cut = words if len(words) <= QUOTED_CHARS_MAX else f"{words[:QUOTED_CHARS_MAX]}…"
    return f'"{harmless_text(cut)}"' if cut else ""
