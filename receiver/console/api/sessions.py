r"""Session cookies: signed, with an expiry, and valid only while the user has the same token.

    value:  EXPIRY . MAC      seconds since 1970, then 64 hexadecimal digits
    MAC:    HMAC-SHA256(key, EXPIRY \0 name of the user \0 token of the user)

The key is in DATA/session.key. There is no list of sessions: a new token, another name or a new key ends the
sessions that were made with the old one.

Never: a token in a cookie, or the key in a log.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from receiver.durable.files import DISK, Files, write_durably
from receiver.errors import place_and_reason
from receiver.logs import limited
from receiver.settings import User

KEY_NAME = "session.key"
KEY_BYTES = 32
_VALUE = re.compile(r"(?P<expiry>[0-9]{1,12})\.[0-9a-f]{64}")


def load_key(data_dir: Path, files: Files = DISK) -> bytes:
    """Return the key of a data directory; create it if it is missing or has another size."""
    path = data_dir / KEY_NAME
    try:
        with suppress(FileNotFoundError):
            stored = files.read_head(path, KEY_BYTES + 1)
            if len(stored) == KEY_BYTES:
                return stored
        key = new_key()
        write_durably(path, key, files=files)
    # Not raised: without the file, sessions end when the receiver restarts, and everything else works.
    except OSError as error:
        limited.warning(
            "session key",
            "session key cannot be stored",
            path=str(path),
            error=place_and_reason(error),
            action="users must log in again after a restart",
        )
        return new_key()
    return key


def new_key() -> bytes:
    """Return a random key."""
    return secrets.token_bytes(KEY_BYTES)


def session_value(key: bytes, user: User, expires_at_s: int) -> str:
    """Return the value of the cookie of a user."""
    # Unambiguous: neither the number nor a name contains a NUL, and the token ends the message.
    signed = f"{expires_at_s}\0{user.name}\0{user.token}".encode()
    return f"{expires_at_s}.{mac_of(key, signed)}"


def mac_of(key: bytes, signed: bytes) -> str:
    """Return the MAC of a message, in hexadecimal. Messages of different kinds must differ in their begin."""
    return hmac.new(key, signed, hashlib.sha256).hexdigest()


def session_user(key: bytes, value: str, users: Iterable[User], now_s: float) -> User | None:
    """Return the user of a cookie; `None` if it is expired or not valid for any user."""
    match = _VALUE.fullmatch(value)
    if match is None or int(match["expiry"]) <= now_s:
        return None
    expires_at_s = int(match["expiry"])
    for user in users:
        if hmac.compare_digest(session_value(key, user, expires_at_s), value):
            return user
    return None
