"""Commands that run in this process, and the data directory that they read while no receiver runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.engine import opening, schema
from receiver.engine.opening import open_store
from receiver.settings import Settings
from tests.support.engines import COMPILATION, delete_rows
from tests.support.fake_clickhouse import schema_sources


def run(*arguments: str, **environ: str) -> Result:
    """Run a command with these variables in its environment."""
    return CliRunner().invoke(main, list(arguments), env=environ, prog_name="trace-drain")


class _KeptOpen:
    """A store that a command does not close: opening the engine takes ten times as long as most queries."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return getattr(self._store, name)

    def close(self) -> None:
        """Leave the store open for the next command."""


@contextmanager
def stored_spans(engine_dir: Path, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a data directory whose store has these spans only, for commands of this process."""
    settings = Settings(data_dir=str(engine_dir.parent))
    store = open_store(settings, disk_free_min=lambda: 1)
    for setting in COMPILATION:
        store.command(f"SET {setting} = 0")
    schema.apply(store, schema_sources(), 30)
    # Tests of other commands leave spans in the same database.
    delete_rows(store)
    if lines := "\n".join(map(json.dumps, rows)):
        store.command(f"INSERT INTO otel_traces FORMAT JSONEachRow\n{lines}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_store", lambda *_, **__: _KeptOpen(store))
        yield settings.data_dir
    store.command("DROP DATABASE otel SYNC")
    store.close()
