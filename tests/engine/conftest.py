"""An embedded engine with an empty database, in which a test creates the tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine.store import Store
from tests.support import engines


@pytest.fixture
def store(engine_dir: Path) -> Iterator[Store]:
    database = f"engine_{uuid4().hex}"
    store = engines.bare(engine_dir, database)
    yield store
    store.command(f"DROP DATABASE {database}")
    store.close()
