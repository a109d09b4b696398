"""The traces of a small shop, which each file of tests stores for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.engine.store import Store
from tests.support.tool_api import shop_store


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    """Yield a store with the shop's spans."""
    with shop_store(engine_dir) as store:
        yield store
