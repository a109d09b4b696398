"""All records about the platform: DATA/platform/."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from receiver.durable.files import DISK, Files
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.projects import Deployments, Projects
from receiver.settings import Settings

DIRECTORY: Final = "platform"


class PlatformRecords(NamedTuple):
    """Records of installations, projects and deployments. Pages read them, and webhooks change them."""

    directory: Path
    installations: Installations
    projects: Projects
    deployments: Deployments

    def complete(self) -> None:
        """Complete what failed because of the disk. Further failures are reported."""
        for records in (self.installations, self.projects, self.deployments):
            records.complete()


def open_records(settings: Settings) -> PlatformRecords:
    """Read the records. Those that cannot be read are reported, and read again by `complete`."""
    platform = settings.platform
    return records_in(
        Path(settings.data_dir) / DIRECTORY, platform.encryption_key, platform.encryption_key_previous
    )


def records_in(
    directory: Path, encryption_key: str = "", previous_key: str = "", files: Files = DISK
) -> PlatformRecords:
    return PlatformRecords(
        directory,
        Installations(directory, encryption_key, previous_key, files),
        Projects(directory, files),
        Deployments(directory, files),
    )
