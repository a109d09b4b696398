"""A journal, a ledger and an engine whose spans are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.engine.embedded import EmbeddedStore
from tests.support import engines
from tests.support.ledger_workspace import Workspace


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[EmbeddedStore]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture
def workspace(tmp_path: Path, store: EmbeddedStore) -> Workspace:
    engines.delete_rows(store)
    return Workspace(tmp_path, store)
