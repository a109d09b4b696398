"""Names of the platform's projects, and which of them were removed there: DATA/platform/projects/ID.json.

Invariant: the order in which events arrive has no influence on the result.
"""

from __future__ import annotations

import threading
from pathlib import Path

from msgspec.structs import replace

from receiver.durable.files import DISK, Files
from receiver.platform.installations.record_files import RecordFiles, is_id
from receiver.platform.installations.records import Project

PROJECTS_MAX = 100_000
"""Number of projects whose names are kept. Names of further projects are not shown."""


class Projects:
    """All projects that the platform has named. Threads may share it."""

    def __init__(self, directory: Path, files: Files = DISK) -> None:
        """Read the records. `directory`: DATA/platform."""
        self._lock = threading.RLock()
        self._files = RecordFiles(directory / "projects", Project, files)

    def all(self) -> list[Project]:
        """Return all projects, by id."""
        with self._lock:
            return sorted(self._files.records.values(), key=lambda project: project.id)

    def find(self, project_id: str) -> Project | None:
        """Return a project; `None` if it is not known."""
        return self._files.records.get(project_id)

    def name(self, project_id: str) -> str:
        """Return the name of a project; empty if it is not known."""
        project = self.find(project_id)
        return project.name if project else ""

    def created(self, project_id: str, name: str, at_s: float) -> bool:
        """Set the name of a project. Returns whether the record changed. Raises `OSError`."""
        with self._lock:
            project = self._found(project_id)
            if at_s <= project.named_at_s:
                return False
            return self._write(replace(project, name=name, named_at_s=at_s))

    def removed(self, project_id: str, at_s: float) -> bool:
        """Note that a project was removed. Returns whether the record changed. Raises `OSError`."""
        with self._lock:
            project = self._found(project_id)
            if at_s <= project.removed_at_s:
                return False
            # A later removal is a new decision of the platform's users, which no operator has seen yet.
            return self._write(replace(project, removed_at_s=at_s, is_revoked=False))

    def revoke(self, project_id: str) -> bool:
        """Keep the spans of a project although it was removed. Returns whether it was. Raises `OSError`."""
        with self._lock:
            project = self.find(project_id)
            return (
                project is not None and project.is_removed and self._write(replace(project, is_revoked=True))
            )

    def complete(self) -> None:
        """Read the records that were not read yet. Failures are reported."""
        with self._lock:
            self._files.read_again()

    def _found(self, project_id: str) -> Project:
        return self._files.find(project_id) or Project(id=project_id)

    def _write(self, project: Project) -> bool:
        is_new = project.id not in self._files
        if not is_id(project.id) or (is_new and len(self._files.records) >= PROJECTS_MAX):
            return False
        self._files.write(project)
        return True
