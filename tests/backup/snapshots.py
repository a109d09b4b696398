"""Data directories, their snapshots and backups without an engine: a part is a directory with a few files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from receiver.backup.backup import Made, back_up
from receiver.backup.manifest import Manifest
from receiver.backup.restore import restore
from receiver.backup.snapshot import DIRECTORY, Snapshot, frozen_parts, part_count
from receiver.engine.store import Store
from receiver.settings import Settings
from tests.support.fake_clickhouse import MemoryStore

SPANS = "store/123/123-of-spans"
Content = dict[str, bytes]


class DataDirectory:
    """The files of a snapshot, written directly to where `take_snapshot` links them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: bytes) -> None:
        path = self.path / DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def part(self, name: str) -> Path:
        return frozen_parts(self.path) / SPANS / name

    def add_part(self, name: str, rows: int, content: bytes = b"columns") -> None:
        self.part(name).mkdir(parents=True)
        for file, text in (
            ("checksums.txt", name.encode() + content),
            ("count.txt", b"%d" % rows),
            ("data.bin", content + name.encode()),
        ):
            (self.part(name) / file).write_bytes(text)

    def remove_part(self, name: str) -> None:
        shutil.rmtree(self.part(name))

    def snapshot(self, table: str = SPANS) -> Snapshot:
        return Snapshot(
            taken_at="2026-11-28T12:00:00Z",
            database="otel",
            tables={"otel_traces": table},
            part_count=part_count(self.path),
        )

    @property
    def content(self) -> Content:
        """Files that a restore must write, by their path in the data directory."""
        files = content_of(self.path / DIRECTORY)
        return files | {
            f"store/{name}": content for name, content in content_of(frozen_parts(self.path)).items()
        }

    def back_up(self, directory: Path) -> Made:
        return back_up(self.path, self.snapshot(), directory, ignore)


def content_of(directory: Path) -> Content:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def ignore(_copied: int, _total: int) -> None:
    """Report no progress."""


class PartsStore(MemoryStore):
    """Store that counts the rows of the parts in its directory, which is all that a restore asks for."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def rows(self, _statement: str, _parameters: Any = None) -> list[tuple[Any, ...]]:  # noqa: ANN401 - as in the contract
        rows: dict[str, int] = {}
        for count in (self._path / SPANS).glob("*/count.txt"):
            day = count.parent.name[:8]
            rows[day] = rows.get(day, 0) + int(count.read_bytes())
        return [("otel_traces", day, found) for day, found in rows.items()]


@contextmanager
def counted_parts(path: Path) -> Iterator[Store]:
    yield PartsStore(path)


def restored(directory: Path, data_dir: Path, **settings: Any) -> Manifest:  # noqa: ANN401 - of any setting
    data_dir.mkdir(exist_ok=True)
    loaded = msgspec.convert({"data_dir": str(data_dir), **settings}, Settings)
    return restore(directory, loaded, counted_parts, ignore)
