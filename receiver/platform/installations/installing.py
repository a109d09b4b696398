"""Completes an installation: exchanges the code of the redirect for a token, once, and stores it.

    code and state noted as used ─▶ exchange ─▶ record written ─▶ token written

A code that was sent may be spent, also after an error: no step is repeated, and each error has an action.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from receiver.config.platform import is_address
from receiver.durable.files import DISK
from receiver.errors import DiskTrouble, InstallationFailed, InstallationRefused, place_and_reason
from receiver.logs import limited
from receiver.platform.client.errors import PlatformError
from receiver.platform.client.oauth import Token, exchange
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.record_files import RecordDirectory
from receiver.platform.installations.records import TEXT_CHARS_MAX, Installation, StateChange, listed_scopes
from receiver.settings import KIB, Platform

CODE_CHARS_MAX = 2_048
"""Maximum length of a code."""
OTHER_BYTES_MAX = 16 * KIB
"""Maximum size of further fields of the response, as JSON. Above it, all of them are dropped."""
NEEDED: Final = ("base_url", "client_id", "client_secret", "install_url", "redirect_url")
"""Settings of `[platform]` without which there is no installation."""
CODES_KEPT_S = 86_400.0
"""Time for which a used code is recognized; its state expires long before."""
CODES_MAX = 1_000
"""Maximum number of used codes that are recognized; the oldest is evicted first."""
_ADDRESSES: Final = ("base_url", "install_url", "redirect_url")
_USED_CODES: Final = "used-codes"
_ID = re.compile(r"icfg_[A-Za-z0-9_-]{1,128}")
_SECRET_FIELD = re.compile(r"token(?!_type)|secret|password|credential|_key\b", re.IGNORECASE)


class Redirect(NamedTuple):
    """Parameters of the platform's redirect. The platform does not promise more than the code."""

    code: str
    state: str
    configuration_id: str = ""


def unusable_settings(platform: Platform) -> list[str]:
    """Return the names of settings that are missing, or no address; an installation needs them."""
    missing = [name for name in NEEDED if not getattr(platform, name)]
    no_address = [name for name in _ADDRESSES if not is_address(getattr(platform, name))]
    return [f"platform.{name}" for name in NEEDED if name in {*missing, *no_address}]


class _Used(msgspec.Struct, frozen=True):
    digests: tuple[str, str]
    at_s: float


class UsedCodes:
    """Codes that were sent to the platform: digests of codes and states, in DATA/platform/used-codes.json.

    Invariant: a code is durable here before it is sent, so that neither a second submission nor a restart
    sends it again. Never: a code itself.
    """

    def __init__(self, directory: Path, now: Callable[[], float]) -> None:
        """`directory`: DATA/platform."""
        self._directory = RecordDirectory(directory, DISK)
        self._now = now
        self._lock = threading.Lock()
        self._used: list[_Used] | None = None

    def use(self, code: str, state: str) -> bool:
        """Record that a code and its state are used. Returns False if one already was. Raises `OSError`."""
        entry = _Used((_digest(code), _digest(state)), self._now())
        with self._lock:
            if self._used is None:
                self._used = self._read()
            if any(set(entry.digests) & set(used.digests) for used in self._used):
                return False
            kept = [used for used in self._used if used.at_s > entry.at_s - CODES_KEPT_S]
            entries = [*kept, entry][-CODES_MAX:]
            self._directory.write(_USED_CODES, msgspec.json.encode(entries))
            self._used = entries
            return True

    def _read(self) -> list[_Used]:
        self._directory.delete_drafts()
        with suppress(FileNotFoundError):
            try:
                return msgspec.json.decode(self._directory.read(_USED_CODES), type=list[_Used])
            except msgspec.DecodeError:
                # The platform refuses a second exchange as well.
                limited.warning(
                    "used codes",
                    "list of used codes cannot be read",
                    path=str(self._directory.path_of(_USED_CODES)),
                    action="a new list is begun",
                )
        return []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Installing:
    def __init__(
        self, installations: Installations, directory: Path, now: Callable[[], float] = time.time
    ) -> None:
        """`directory`: DATA/platform."""
        self._installations = installations
        self._used = UsedCodes(directory, now)
        self._now = now

    async def complete(self, platform: Platform, redirect: Redirect) -> Installation:
        """Exchange the code and store the installation. The state must be checked before.

        Raises `InstallationRefused`, `InstallationFailed`, `DiskTrouble`.
        """
        if not redirect.code:
            raise InstallationRefused(
                "the platform sent no code, as if the installation was not confirmed; nothing was changed"
            )
        if len(redirect.code) > CODE_CHARS_MAX:
            raise InstallationRefused(
                f"the code has over {CODE_CHARS_MAX} characters; expected the link of the platform"
            )
        # Shielded: if the browser leaves, the token of an exchange that was sent must still be stored.
        return await asyncio.shield(self._complete(platform, redirect))

    async def _complete(self, platform: Platform, redirect: Redirect) -> Installation:
        await asyncio.to_thread(self._use, redirect)
        try:
            token = await exchange(
                platform.base_url,
                platform.client_id,
                platform.client_secret,
                redirect.code,
                platform.redirect_url,
                timeout_s=platform.timeout_s,
            )
        except PlatformError as error:
            raise InstallationFailed(
                f"the platform gave no token: {error}. The code may be spent and is not sent again, so "
                "begin again on the page Platform"
            ) from None
        return await asyncio.to_thread(self._store, token, redirect)

    def _use(self, redirect: Redirect) -> None:
        try:
            is_first = self._used.use(redirect.code, redirect.state)
        except OSError as error:
            raise DiskTrouble(
                f"the code cannot be noted as used: {place_and_reason(error)}; nothing was sent to the "
                "platform, so free disk space and load this page again within 30 minutes"
            ) from None
        if not is_first:
            raise InstallationRefused(
                "this link was used before; an installation that succeeded is on the page Platform, "
                "otherwise begin again there"
            )

    def _store(self, token: Token, redirect: Redirect) -> Installation:
        now_s, fields = self._now(), token.fields
        installation = Installation(
            id=_id_of(fields, redirect),
            team_id=(token.team_id or "")[:TEXT_CHARS_MAX],
            user_id=_text(fields, "user_id"),
            scopes=_scopes_of(fields),
            installed_at_s=now_s,
            changes=(StateChange("active", now_s),),
            other=_without_secrets(fields, token.access_token),
        )
        try:
            self._installations.add(installation, token.access_token)
        except OSError as error:
            raise InstallationFailed(
                f"the platform gave a token, and it cannot be stored: {place_and_reason(error)}; the token "
                "is lost, so free disk space, remove the integration on the platform, and begin again"
            ) from None
        return installation


def _id_of(fields: Mapping[str, Any], redirect: Redirect) -> str:
    """Return the id of the installation. The response of the platform has priority over the URL."""
    for text in (
        _text(fields, "installation_id"),
        _text(fields, "configuration_id"),
        redirect.configuration_id,
    ):
        if _ID.fullmatch(text):
            return text
    # In another form than the platform's ids, so that it cannot be mistaken for one of them.
    return f"unnamed-{secrets.token_hex(8)}"


def _scopes_of(fields: Mapping[str, Any]) -> tuple[str, ...] | None:
    scopes = fields.get("scopes", fields.get("scope"))
    if isinstance(scopes, str):
        scopes = scopes.replace(",", " ").split()
    is_list = isinstance(scopes, list) and all(isinstance(scope, str) for scope in scopes)
    return listed_scopes(scopes) if is_list else None


def _without_secrets(fields: Mapping[str, Any], token: str) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in fields.items()
        if not _SECRET_FIELD.search(name) and token not in str(value)
    }
    return kept if len(msgspec.json.encode(kept)) <= OTHER_BYTES_MAX else {}


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value[:TEXT_CHARS_MAX] if isinstance(value, str) else ""
