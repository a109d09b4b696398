"""Data directory of the embedded store: any path works, and other users cannot read it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.engine.embedded import Bootstrap, EmbeddedStore
from tests.support.fake_clickhouse import ROOT
from tests.support.segments import SegmentMaker

SCRIPT = """
import os, sys
from pathlib import Path
from receiver.engine import schema
from tests.support import engines
from tests.support.segments import SegmentMaker
from tests.support.fake_clickhouse import schema_sources

os.umask(0)
data = Path(sys.argv[1])
store = engines.bare(data / "store", "otel")
schema.apply(store, schema_sources(), 0)
segment = SegmentMaker(data).make(0, 1)
read = store.insert(segment.path, token="a", query_id="a")
print(read, store.counts([segment.location])[segment.location.segment] == segment.days)
store.close()
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a{1..3}{b,c}*[d]", id="patterns of the engine"),
        pytest.param('it\'s "a" \\b', id="quotes and escapes of SQL"),
        pytest.param("a b ü#%20;&", id="characters with a meaning in an address"),
    ],
)
def test_data_directory_of_any_name_works_and_is_private(tmp_path: Path, name: str) -> None:
    data = tmp_path / name
    data.mkdir(mode=0o700)

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(data)], capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert done.stdout.split() == ["2", "True"], done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert modes_open_to_others(data / "store") == []


def modes_open_to_others(directory: Path) -> list[str]:
    """Return the files and directories that users other than the owner may read or enter."""
    paths = [Path(root, name) for root, dirs, files in os.walk(directory) for name in [*dirs, *files]]
    return [
        str(path)
        for path in [directory, *paths]
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def test_insert_reads_only_the_file_it_names_though_the_path_is_a_pattern(
    engine_dir: Path, tmp_path: Path
) -> None:
    pattern, decoy = tmp_path / "a*b", tmp_path / "a1b"
    for directory in (pattern, decoy):
        directory.mkdir()
    segment = SegmentMaker(pattern).make(0)
    (decoy / segment.path.name).write_bytes(SegmentMaker(decoy).make(1, 2).path.read_bytes())
    store = EmbeddedStore(engine_dir, database="places", memory_bytes_max=1 << 30, disk_free_min=lambda: 1)
    store.command("CREATE TABLE IF NOT EXISTS otel_traces (Timestamp DateTime64(9)) ENGINE = Null")
    try:
        read = store._insert_file(  # noqa: SLF001 - the statement, without our tables
            "otel_traces", segment.path, "a", {"input_format_skip_unknown_fields": "1"}
        )
    finally:
        store.command("DROP DATABASE places")
        store.close()

    assert read == 1


def test_store_that_an_earlier_version_left_readable_is_closed_to_others(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o755)

    Bootstrap(store).begin(disk_free_min=0)

    assert modes_open_to_others(store) == []
