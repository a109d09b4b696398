"""Order of the tests, settings of property tests, and engines that tests share: each takes a gigabyte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.server_process import Server, clickhouse_server

# An example may take long on a busy machine.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

LONG_FOLDERS = {"crash", "e2e", "faults", "query", "torture"}
"""Folders with the files that take the longest: they begin first, so that none runs alone at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of `LONG_FOLDERS` first, and keep the random order within both groups."""
    items.sort(key=lambda item: item.path.parent.name not in LONG_FOLDERS)


@pytest.fixture(scope="session")
def engine_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the only directory that this process opens the embedded engine in; its parent is a data_dir."""
    return tmp_path_factory.mktemp("data") / "store"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a ClickHouse server over HTTP, implemented with chDB."""
    with clickhouse_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of the server in TRACE_DRAIN_TEST_CLICKHOUSE, or of our own server."""
    url = os.environ.get("TRACE_DRAIN_TEST_CLICKHOUSE")
    if url:
        return url
    running: Server = request.getfixturevalue("server")
    return running.url
