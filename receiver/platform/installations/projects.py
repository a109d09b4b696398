"""Projects of the platform: their names, their deployments, and which of them were removed there.

    DATA/platform/projects/ID.json       name and removal
    DATA/platform/deployments/ID.json    project of a deployment, as webhooks report it

A sender chooses the ids in its spans, so they give no access. Only the records of deployments decide which
users with limited projects see the events of a deployment.

The receiver deletes no span of a removed project itself. The ledger proves that every span that was received
is in the table, and a deletion by project would look like a loss. The retention of the store deletes the
spans in any case, since a removed project receives no new ones.

Invariant: the order in which webhooks arrive has no influence on the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from receiver.durable.files import DISK, Files
from receiver.platform.installations.record_files import RecordFiles, is_id
from receiver.platform.installations.records import Deployment, Project
from receiver.settings import DAY_S

PROJECTS_MAX = 100_000
"""Maximum number of projects with a record. Names of further projects are not shown."""
DEPLOYMENTS_MAX = 20_000
"""Maximum number of deployments with a record; the oldest is deleted first."""


class Projects(RecordFiles[Project]):
    """All projects that the platform has named."""

    def __init__(self, directory: Path, files: Files = DISK) -> None:
        """Read the records. `directory`: DATA/platform."""
        super().__init__(directory / "projects", Project, files)

    def all(self) -> list[Project]:
        """Return all projects, by id."""
        with self._lock:
            return sorted(self._records.values(), key=lambda project: project.id)

    def name(self, project_id: str) -> str:
        project = self.find(project_id)
        return project.name if project else ""

    def created(self, project_id: str, name: str, at_s: float) -> bool:
        """Set the name of a project. Returns whether the record changed. Raises `OSError`."""
        with self._lock:
            project = self._found(project_id)
            if at_s <= project.named_at_s:
                return False
            return self._change(replace(project, name=name, named_at_s=at_s))

    def removed(self, project_id: str, at_s: float) -> bool:
        """Record that a project was removed. Returns whether the record changed. Raises `OSError`."""
        with self._lock:
            project = self._found(project_id)
            if at_s <= project.removed_at_s:
                return False
            # A later removal is a new decision of the platform's users, which no operator has seen yet.
            return self._change(replace(project, removed_at_s=at_s, is_revoked=False))

    def revoke(self, project_id: str) -> bool:
        """Keep the spans of a project although it was removed. Returns whether it was. Raises `OSError`."""
        with self._lock:
            project = self.find(project_id)
            return (
                project is not None and project.is_removed and self._change(replace(project, is_revoked=True))
            )

    def _found(self, project_id: str) -> Project:
        return self._stored(project_id) or Project(id=project_id)

    def _change(self, project: Project) -> bool:
        is_new = project.id not in self
        if not is_id(project.id) or (is_new and len(self._records) >= PROJECTS_MAX):
            return False
        self._write(project)
        return True


class Deployments(RecordFiles[Deployment]):
    """The deployments whose projects the platform has reported."""

    def __init__(self, directory: Path, files: Files = DISK) -> None:
        """Read the records. `directory`: DATA/platform."""
        super().__init__(directory / "deployments", Deployment, files)

    def project(self, deployment_id: str) -> str:
        """Return the project of a deployment; empty if the platform has not reported it."""
        known = self.find(deployment_id)
        return known.project_id if known else ""

    def assign(self, deployment_id: str, project_id: str, at_s: float) -> bool:
        """Set the project of a deployment. Returns whether the record changed. Raises `OSError`."""
        if not (is_id(deployment_id) and is_id(project_id)):
            return False
        with self._lock:
            known = self._stored(deployment_id)
            if known is not None and at_s <= known.at_s:
                return False
            self._write(Deployment(id=deployment_id, project_id=project_id, at_s=at_s))
            if len(self._records) > DEPLOYMENTS_MAX:
                oldest = min(self._records.values(), key=lambda each: (each.at_s, each.id))
                self._delete(oldest.id)
            return True


class RemovedProject(msgspec.Struct, frozen=True):
    """A project that was removed on the platform, for the page and the API."""

    id: str
    name: str
    removed_at_s: float
    due_at_s: float
    """Time at which its spans are due for deletion, unless an operator keeps them."""
    is_kept: bool
    """Whether an operator keeps the spans."""

    def is_due(self, now_s: float) -> bool:
        """Return whether an operator may delete the spans."""
        return not self.is_kept and now_s >= self.due_at_s


def removed_projects(projects: Iterable[Project], retention_days: int) -> list[RemovedProject]:
    """Return the removed projects in the order in which they are due."""
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
