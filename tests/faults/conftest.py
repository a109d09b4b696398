"""What tests of faults share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - only faster


@pytest.fixture
def quick_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory where a sync costs nothing, for those that only simulate a disk."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        yield Path(directory)
