"""Retention clock of removed projects: when their spans are due for deletion by an operator.

The receiver deletes no span of a removed project itself. The ledger proves that every span that was received
is in the table, and a deletion by project would look like a loss. The retention of the store deletes the
spans in any case, since a removed project receives no new ones.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from receiver.platform.installations.records import Project
from receiver.settings import DAY_S


class RemovedProject(msgspec.Struct, frozen=True):
    """A project that was removed on the platform, as the page and the API show it."""

    id: str
    name: str
    removed_at_s: float
    due_at_s: float
    """When its spans are due for deletion, unless they are kept."""
    is_kept: bool
    """Whether an operator keeps the spans."""

    def is_due(self, now_s: float) -> bool:
        """Return whether an operator may delete the spans."""
        return not self.is_kept and now_s >= self.due_at_s


def removed_projects(projects: Iterable[Project], retention_days: int) -> list[RemovedProject]:
    """Return the removed projects, those that are due first at the beginning."""
    removed = [
        RemovedProject(
            project.id,
            project.name,
            project.removed_at_s,
            project.removed_at_s + retention_days * DAY_S,
            project.is_revoked,
        )
        for project in projects
        # A project that was created again with the same id is not removed any more.
        if project.removed_at_s > project.named_at_s
    ]
    return sorted(removed, key=lambda project: (project.is_kept, project.due_at_s, project.id))
