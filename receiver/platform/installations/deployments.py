"""Projects of deployments, as webhooks of the platform report them: DATA/platform/deployments/ID.json.

A sender chooses the ids that its spans have. Only these records decide which users limited to projects see
the events of a deployment.

Invariant: the order in which webhooks arrive has no influence on the result.
"""

from __future__ import annotations

import threading
from pathlib import Path

from receiver.durable.files import DISK, Files
from receiver.platform.installations.record_files import RecordFiles, is_id
from receiver.platform.installations.records import Deployment

DEPLOYMENTS_MAX = 20_000
"""Number of deployments whose projects are kept; the oldest is deleted first."""


class Deployments:
    """The deployments whose projects the platform has reported. Threads may share it."""

    def __init__(self, directory: Path, files: Files = DISK) -> None:
        """Read the records. `directory`: DATA/platform."""
        self._lock = threading.Lock()
        self._files = RecordFiles(directory / "deployments", Deployment, files)

    def project(self, deployment_id: str) -> str:
        """Return the project of a deployment; empty if the platform has not reported it."""
        known = self._files.records.get(deployment_id)
        return known.project_id if known else ""

    def complete(self) -> None:
        """Read the records that were not read yet. Failures are reported."""
        with self._lock:
            self._files.read_again()

    def assign(self, deployment_id: str, project_id: str, at_s: float) -> bool:
        """Set the project of a deployment. Returns whether the record changed. Raises `OSError`."""
        if not (is_id(deployment_id) and is_id(project_id)):
            return False
        with self._lock:
            known = self._files.find(deployment_id)
            if known is not None and at_s <= known.at_s:
                return False
            self._files.write(Deployment(id=deployment_id, project_id=project_id, at_s=at_s))
            if len(self._files.records) > DEPLOYMENTS_MAX:
                oldest = min(self._files.records.values(), key=lambda each: (each.at_s, each.id))
                self._files.delete(oldest.id)
            return True
