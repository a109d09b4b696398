r"""Signed values: cookies of sessions, and states of installations.

A session is valid only while the user has the same token.

    value:  EXPIRY . MAC      seconds since 1970, then 64 hexadecimal digits
    MAC:    HMAC-SHA256(key, EXPIRY \0 name of the user \0 token of the user)

A state of an installation proves that a redirect of the platform follows a request of the same user:

    value:  EXPIRY . NONCE . MAC     seconds since 1970, 22 random characters, 64 hexadecimal digits
    MAC:    HMAC-SHA256(key, JSON list of purpose, EXPIRY, NONCE, user and redirect URL)

Browsers do not add the session cookie to a redirect of another site, and the page that completes the
installation changes data by GET: only this state proves that the user intended it.

The key is derived from the setting `api.session_key`, or is in DATA/session.key. There is no list of
sessions: a new token, another name or a new key ends the sessions of the old key.

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
from typing import Final

import msgspec

from receiver.durable.files import DISK, Files, write_durably
from receiver.errors import InstallationRefused, place_and_reason
from receiver.logs import limited
from receiver.settings import User

KEY_NAME = "session.key"
KEY_BYTES = 32
_VALUE = re.compile(r"(?P<expiry>[0-9]{1,12})\.[0-9a-f]{64}")
STATE_S: Final = 1_800
"""Lifetime of a state: the platform accepts the code of an installation for as long."""
_PURPOSE: Final = "install"
_STATE = re.compile(r"(?P<expiry>[0-9]{1,12})\.(?P<nonce>[A-Za-z0-9_-]{22})\.(?P<mac>[0-9a-f]{64})")


def load_key(data_dir: Path, text: str = "", files: Files = DISK) -> bytes:
    """Return the key derived from this text; without a text, that of the data directory.

    The latter is created if it is missing or has another size.
    """
    if text:
        return hashlib.sha256(b"trace-drain sessions\0" + text.encode()).digest()
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


def state_value(key: bytes, signer: tuple[str, str], redirect_url: str, expires_at_s: int) -> str:
    """Return a new state. `signer`: the kind and the name of the user."""
    nonce = secrets.token_urlsafe(16)
    return f"{expires_at_s}.{nonce}.{_state_mac(key, signer, redirect_url, str(expires_at_s), nonce)}"


def check_state(key: bytes, value: str, signer: tuple[str, str], redirect_url: str, now_s: float) -> None:
    """Raise `InstallationRefused` if the state is forged, of another user or redirect URL, or expired."""
    match = _STATE.fullmatch(value)
    if match is None or not hmac.compare_digest(
        _state_mac(key, signer, redirect_url, match["expiry"], match["nonce"]), match["mac"]
    ):
        raise InstallationRefused(
            "this link does not come from an installation that you began here, or the settings have changed "
            "since; nothing was changed, so begin on the page Platform, as the same user, in this browser"
        )
    if int(match["expiry"]) <= now_s:
        raise InstallationRefused(
            f"the installation was begun over {STATE_S // 60} minutes ago, and the platform's code expires "
            "as fast; nothing was changed, so begin again on the page Platform"
        )


def _state_mac(key: bytes, signer: tuple[str, str], redirect_url: str, expiry: str, nonce: str) -> str:
    # As JSON, so that no part can end in another. The message of a session begins with a digit.
    return mac_of(key, msgspec.json.encode([_PURPOSE, expiry, nonce, *signer, redirect_url]))
