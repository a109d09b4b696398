"""The engines that tests share: each costs a second to open and a gigabyte to run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import Server, clickhouse_server


@pytest.fixture(scope="session")
def engine_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one directory that the embedded engine of this process may have open; its parent is a data_dir."""
    return tmp_path_factory.mktemp("data") / "store"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A ClickHouse server over HTTP: our own over chDB."""
    with clickhouse_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> str:
    """A real one, where TRACE_DRAIN_TEST_CLICKHOUSE names it; else our own."""
    real = os.environ.get("TRACE_DRAIN_TEST_CLICKHOUSE")
    if real:
        return real
    running: Server = request.getfixturevalue("server")
    return running.url
