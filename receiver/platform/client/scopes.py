"""Scopes of installations, and the scopes that each call needs.

A scope is a name with a level: `deployment:read`, `project:write`. `write` includes `read`. The platform may
also write `read:deployment`, or the name alone, which is taken for both levels.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

SCOPES: Final = (
    *("integration-configuration", "deployment", "deployment-check", "edge-config", "project"),
    *("project-env-vars", "global-project-env-vars", "team", "user", "log-drain", "domain"),
)
"""Every name that an integration can request."""
Call = Literal["deployment events", "microfrontends update"]
NEEDED: Final[dict[Call, tuple[str, ...]]] = {
    "deployment events": ("deployment:read",),
    "microfrontends update": ("project:write",),
}
"""Scopes of each call. The specification names the scopes, and not which call needs which."""
_LEVELS: Final = {"read": {"read"}, "write": {"read", "write"}}


def missing_scopes(needed: Collection[str], granted: Collection[str]) -> list[str]:
    """Return the scopes that are needed and not granted."""
    held = {scope for text in granted for scope in _levels_of(text)}
    return [scope for scope in needed if not _levels_of(scope) <= held]


def _levels_of(text: str) -> set[str]:
    """Return the name with each level that the scope includes."""
    first, _, second = text.strip().lower().partition(":")
    name, level = (second, first) if first in _LEVELS else (first, second)
    return {f"{name}:{included}" for included in _LEVELS.get(level, _LEVELS["write"])}
