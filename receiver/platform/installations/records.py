"""Records of installations, projects and deployments, as files hold them.

An installation has the states active → disabled → deleted, or removed. A change that is older than the state,
or that follows an end, changes nothing: the platform's messages arrive in any order, and more than once.

Never: a token in a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

State = Literal["active", "disabled", "deleted", "removed"]
"""`disabled`: the platform refuses every call; `deleted`: 30 days later; `removed`: uninstalled by a user."""
ENDS: Final[frozenset[State]] = frozenset(("deleted", "removed"))
"""States that no other state follows: an id is never used again."""
DISABLED_S_MAX = 30 * 86_400.0
"""Time after which the platform deletes a disabled installation."""
CHANGES_MAX = 64
"""Maximum number of changes of state in a record; the second oldest is evicted first."""
TEXT_CHARS_MAX = 256
"""Length to which texts of the platform are cut in a record."""
SCOPES_MAX = 64
"""Maximum number of scopes in a record."""


def listed_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return scopes in the form of a record: each once, in order, and not too many."""
    return tuple(sorted({scope[:TEXT_CHARS_MAX] for scope in scopes})[:SCOPES_MAX])


class StateChange(msgspec.Struct, frozen=True):
    state: State
    at_s: float


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team_id: str = ""
    """Team on which it is installed; empty for a personal account."""
    user_id: str = ""
    scopes: tuple[str, ...] | None = None
    """Scopes that the platform has granted; `None` if it has not listed them."""
    scopes_at_s: float = 0.0
    """Time of the confirmation that set them; 0 if none was reported."""
    installed_at_s: float | None = None
    """`None` for an installation whose removal was reported before it was known."""
    changes: tuple[StateChange, ...] = ()
    """States, oldest first."""
    other: dict[str, Any] = {}
    """Further fields of the platform's answer."""

    @property
    def state(self) -> State:
        return self.changes[-1].state if self.changes else "active"

    @property
    def since_s(self) -> float:
        """Return the time at which the present state began."""
        return self.changes[-1].at_s if self.changes else self.installed_at_s or 0.0

    @property
    def deleted_at_s(self) -> float | None:
        """Return the time at which the platform deletes it; `None` unless it is disabled."""
        return self.since_s + DISABLED_S_MAX if self.state == "disabled" else None

    @property
    def is_ended(self) -> bool:
        """Return whether the platform has deleted it, or a user has removed it."""
        return self.state in ENDS

    def changed(self, state: State, at_s: float) -> Installation:
        """Return the record after a change of state, which may be the same record."""
        if self.is_ended or state == self.state or (at_s < self.since_s and state not in ENDS):
            return self
        changes = (*self.changes, StateChange(state, at_s))
        if len(changes) > CHANGES_MAX:
            changes = (changes[0], *changes[2:])
        return msgspec.structs.replace(self, changes=changes)


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project of the platform: its name, and whether it was removed there."""

    id: str
    name: str = ""
    named_at_s: float = 0.0
    """Time of the event that gave the name."""
    removed_at_s: float = 0.0
    """Time of the last removal; 0 if it was never removed. Its spans may be deleted some time later."""
    is_revoked: bool = False
    """Whether an operator keeps the spans although the project was removed."""

    @property
    def is_removed(self) -> bool:
        """Return whether the project is removed, and no operator has revoked that."""
        return self.removed_at_s > self.named_at_s and not self.is_revoked


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    project_id: str
    at_s: float
    """Time of the event that named the project."""
