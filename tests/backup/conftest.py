"""A data directory with a snapshot, as the engine and `take_snapshot` leave one, without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backup.snapshots import DataDirectory


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """A snapshot with a part of each of two days, and files beside the store."""
    data = DataDirectory(tmp_path / "data")
    data.add_part("20261127_1_1_0", rows=2)
    data.add_part("20261128_2_2_0", rows=3)
    data.write("ledger/0000000001.log", b"entries")
    data.write("journal/00000000000000aa/0000000001.native.lz4", b"spans")
    data.write("store/metadata/otel.sql", b"ATTACH DATABASE")
    return data
