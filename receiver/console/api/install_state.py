r"""State of an installation: proves that a redirect of the platform follows a request of the same user.

    value:  EXPIRY . NONCE . MAC     seconds since 1970, 22 random characters, 64 hexadecimal digits
    MAC:    HMAC-SHA256(key of the sessions, JSON list of purpose, EXPIRY, NONCE, user and redirect URL)

Browsers do not add the session cookie to a redirect of another site, and the page that completes the
installation changes data by GET: only this state proves that the user wants that.
"""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Final

import msgspec

from receiver.console.api.sessions import mac_of
from receiver.errors import InstallationRefused

STATE_S: Final = 1_800
"""Lifetime of a state: as long as the platform accepts the code that comes with it."""
_PURPOSE: Final = "install"
_VALUE = re.compile(r"(?P<expiry>[0-9]{1,12})\.(?P<nonce>[A-Za-z0-9_-]{22})\.(?P<mac>[0-9a-f]{64})")


def state_value(key: bytes, signer: tuple[str, str], redirect_url: str, expires_at_s: int) -> str:
    """Return a new state. `signer`: the kind and the name of the user."""
    nonce = secrets.token_urlsafe(16)
    return f"{expires_at_s}.{nonce}.{_mac(key, signer, redirect_url, str(expires_at_s), nonce)}"


def check_state(key: bytes, value: str, signer: tuple[str, str], redirect_url: str, now_s: float) -> None:
    """Raise `InstallationRefused` if the state is forged, of another user or redirect URL, or expired."""
    match = _VALUE.fullmatch(value)
    if match is None or not hmac.compare_digest(
        _mac(key, signer, redirect_url, match["expiry"], match["nonce"]), match["mac"]
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


def _mac(key: bytes, signer: tuple[str, str], redirect_url: str, expiry: str, nonce: str) -> str:
    # As JSON, so that no part can end in another. The message of a session begins with a digit.
    return mac_of(key, msgspec.json.encode([_PURPOSE, expiry, nonce, *signer, redirect_url]))
