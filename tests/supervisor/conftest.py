"""Fixtures of the supervisor tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.supervised import Supervised


@pytest.fixture
def supervised(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Supervised]:
    """Provide a supervisor that is not started yet, with the configuration `CONFIG` of the test module."""
    supervisor = Supervised(tmp_path)
    supervisor.configure(getattr(request.module, "CONFIG", ""))
    yield supervisor
    supervisor.clean_up()
