"""Installations of the emulated integration: codes, tokens, scopes, and their states.

    active ─▶ disabled ─▶ deleted (after 30 days)
      │ ▲         │
      │ └transfer─┘          removed: uninstalled by a user

Invariant: an installation's id is never used again, and a code is exchanged at most once.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

from trace_drain_testing.emulator.clock import Clock
from trace_drain_testing.emulator.ids import Ids
from trace_drain_testing.emulator.refusals import Refusal, bad_request, conflict, forbidden, not_found

SCOPES = (
    *("integration-configuration", "deployment", "deployment-check", "edge-config", "project"),
    *("project-env-vars", "global-project-env-vars", "team", "user", "log-drain", "domain"),
)
LEVELS = {"read": 1, "write": 2}
CODE_AGE_S_MAX = 30 * 60
DISABLED_S_MAX = 30 * 86_400
"""Time after which a disabled installation is deleted."""
EMAILS_MAX = 1_000
"""Maximum number of emails; the newest are kept."""
DISABLED_CODE = "integration_configuration_disabled"
State = Literal["active", "disabled", "removed", "deleted"]
Levels = dict[str, int]
"""Granted level of each scope."""


def parse_scopes(texts: Iterable[str]) -> Levels:
    """Parse scopes such as `deployment:read`; a name alone means `write`."""
    levels: Levels = {}
    for text in texts:
        name, _, level = text.partition(":")
        if name not in SCOPES or (level or "write") not in LEVELS:
            raise bad_request(f"unknown scope; expected NAME:read or NAME:write of {', '.join(SCOPES)}")
        levels[name] = max(levels.get(name, 0), LEVELS[level or "write"])
    return levels


def scope_texts(levels: Levels) -> list[str]:
    names = {level: name for name, level in LEVELS.items()}
    return [f"{name}:{names[levels[name]]}" for name in SCOPES if name in levels]


@dataclass(slots=True)
class Code:
    """Authorization code, to be exchanged for a token."""

    text: str
    redirect_uri: str
    created_s: float
    is_spent: bool = False


@dataclass
class Installation:
    id: str
    team_id: str | None
    user_id: str
    owner_ids: tuple[str, ...]
    """Owners of the team, or the only user: all must confirm additional scopes."""
    scopes: Levels
    webhook_url: str
    created_s: float
    code: Code
    state: State = "active"
    disabled_at_s: float | None = None
    token: str = ""
    pending: Levels = field(default_factory=dict)
    confirmed_by: set[str] = field(default_factory=set)

    @property
    def confirmers(self) -> tuple[str, ...]:
        """Return the users that must confirm additional scopes."""
        return tuple(dict.fromkeys((self.user_id, *self.owner_ids)))

    def summary(self) -> dict[str, Any]:
        """Return the installation without its code and token."""
        return {
            "id": self.id,
            "team_id": self.team_id,
            "user_id": self.user_id,
            "state": self.state,
            "disabled_at": self.disabled_at_s,
            "deleted_at": None if self.disabled_at_s is None else self.disabled_at_s + DISABLED_S_MAX,
            "scopes": scope_texts(self.scopes),
            "pending_scopes": scope_texts(self.pending),
            "confirmers": list(self.confirmers),
            "confirmed_by": sorted(self.confirmed_by),
            "webhook_url": self.webhook_url,
            "has_token": bool(self.token),
        }


@dataclass(frozen=True, slots=True)
class Email:
    at_s: float
    to: str
    subject: str
    text: str


@dataclass
class EmulatedInstallations:
    clock: Clock
    ids: Ids
    notify: Callable[[Installation, str], None]
    """Sends a webhook of this type about an installation."""
    allows_return: Callable[[], bool]
    """Returns whether a transfer of ownership ends the disabled state."""
    by_id: dict[str, Installation] = field(default_factory=dict)
    emails: deque[Email] = field(default_factory=lambda: deque(maxlen=EMAILS_MAX))

    def add(
        self, team_id: str | None, scopes: Levels, *, redirect_uri: str, webhook_url: str, owner: str
    ) -> Installation:
        """Install the integration, with a code for the exchange."""
        now_s = self.clock.now_s()
        made = Installation(
            self.ids.new("icfg_"),
            team_id,
            self.ids.new("usr_"),
            (owner,) if team_id else (),
            scopes,
            webhook_url,
            now_s,
            Code(self.ids.new(""), redirect_uri, now_s),
        )
        self.by_id[made.id] = made
        return made

    def find(self, installation_id: str) -> Installation:
        self.delete_due()
        try:
            return self.by_id[installation_id]
        except KeyError:
            raise not_found("installation") from None

    def with_token(self, token: str) -> Installation | None:
        """Return the installation to which a token gives access."""
        self.delete_due()
        token_bytes = token.encode()
        return next(
            (
                installation
                for installation in self.by_id.values()
                if installation.token
                and installation.state in {"active", "disabled"}
                and hmac.compare_digest(installation.token.encode(), token_bytes)
            ),
            None,
        )

    def exchange(self, code: str, redirect_uri: str) -> Installation:
        """Exchange a code for a token, once. Raises `Refusal`."""
        self.delete_due()
        installation = next((each for each in self.by_id.values() if each.code.text == code), None)
        if installation is None or installation.state in {"removed", "deleted"}:
            raise invalid_grant("the code is unknown")
        if installation.code.is_spent:
            raise invalid_grant("the code was exchanged before")
        if self.clock.now_s() - installation.code.created_s >= CODE_AGE_S_MAX:
            raise invalid_grant("the code is older than 30 minutes")
        if installation.code.redirect_uri != redirect_uri:
            raise invalid_grant("redirect_uri is not the address to which the code was sent")
        require_active(installation)
        installation.code.is_spent = True
        installation.token = self.ids.new("tok_")
        return installation

    def disable(self, installation: Installation) -> None:
        """Disable an installation because its integration has no owner in the responsible team."""
        _require_state(installation, "active")
        installation.state = "disabled"
        installation.disabled_at_s = self.clock.now_s()
        self._email(
            installation.owner_ids or (installation.user_id,),
            "Integration disabled",
            f"{installation.id}: transfer the ownership of the integration within 30 days",
        )

    def transfer(self, installation: Installation) -> None:
        """Transfer the ownership of the integration, which ends the disabled state."""
        _require_state(installation, "disabled")
        if not self.allows_return():
            raise conflict("P42: nothing ends the disabled state now")
        installation.state = "active"
        installation.disabled_at_s = None

    def remove(self, installation: Installation) -> None:
        """Uninstall the integration: the token is revoked, and the id is not used again."""
        _require_state(installation, "active", "disabled")
        self._end(installation, "removed")

    def delete_due(self) -> None:
        """Delete the installations that were disabled for 30 days."""
        now_s = self.clock.now_s()
        for installation in self.by_id.values():
            disabled_at_s = installation.disabled_at_s if installation.state == "disabled" else None
            if disabled_at_s is not None and now_s - disabled_at_s >= DISABLED_S_MAX:
                self._end(installation, "deleted")

    def request_scopes(self, installation: Installation, levels: Levels, note: str) -> None:
        """Change the scopes: reductions apply at once, additions when every user has confirmed them."""
        _require_state(installation, "active", "disabled")
        current = installation.scopes
        installation.scopes = {
            name: min(level, levels[name]) for name, level in current.items() if name in levels
        }
        installation.pending = {name: level for name, level in levels.items() if level > current.get(name, 0)}
        installation.confirmed_by.clear()
        if installation.pending:
            added = ", ".join(scope_texts(installation.pending))
            text = f"{installation.id} requests {added}. {note}".strip()
            self._email(installation.confirmers, "Confirm scopes", text)

    def confirm_scopes(self, installation: Installation, user: str) -> None:
        """Confirm all pending scopes by one user; empty means every user that must confirm."""
        _require_state(installation, "active", "disabled")
        if not installation.pending:
            raise bad_request("no scopes wait for confirmation")
        if user and user not in installation.confirmers:
            raise forbidden("the user is not asked to confirm scopes")
        installation.confirmed_by |= {user} if user else set(installation.confirmers)
        if installation.confirmed_by >= set(installation.confirmers):
            installation.scopes |= installation.pending
            installation.pending = {}
            self.notify(installation, "integration-configuration.scope-change-confirmed")

    def _end(self, installation: Installation, state: Literal["removed", "deleted"]) -> None:
        # Before the state changes, because webhooks are sent to existing installations only.
        self.notify(installation, "integration-configuration.removed")
        installation.state = state
        installation.token = ""
        installation.pending = {}

    def _email(self, to: Iterable[str], subject: str, text: str) -> None:
        self.emails.extend(Email(self.clock.now_s(), user, subject, text) for user in to)


def require_active(installation: Installation) -> None:
    """Refuse every request of a disabled installation."""
    if installation.state == "disabled":
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            DISABLED_CODE,
            "the integration has no owner; transfer its ownership within 30 days",
        )


def invalid_grant(message: str) -> Refusal:
    """Return the error for a code that cannot be exchanged."""
    return Refusal(HTTPStatus.BAD_REQUEST, "invalid_grant", message)


def _require_state(installation: Installation, *states: State) -> None:
    if installation.state not in states:
        expected = " or ".join(states)
        raise conflict(f"the installation is {installation.state}; expected {expected}")
