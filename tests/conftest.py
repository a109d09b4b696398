"""Tiers and order of tests, settings of property tests, and shared engines (a gigabyte each)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from receiver.logs import limited
from tests.support.segments import SegmentMaker
from tests.support.server_process import Server, clickhouse_server
from tests.support.tiers import has_only_fault_tier, is_fault_tier

# An example may take long on a busy machine.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

LONG_FOLDERS = {"crash", "e2e", "faults", "queries", "rollup", "torture"}
"""Folders with the files that take the longest: they begin first, so that none runs alone at the end."""


def pytest_configure() -> None:
    """Let tests send SIGINT to their children, which would ignore it if this process does, as behind `&`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test` and `make test-faults`. Without it both tiers run."""
    parser.addoption("--tier", choices=["test", "faults"], help="run only the tests of this tier")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of which `make test` runs no test."""
    file = str(collection_path.relative_to(config.rootpath))
    return True if config.getoption("--tier") == "test" and has_only_fault_tier(file) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the other tier. Put `LONG_FOLDERS` first, and keep the random order within both groups."""
    if tier := config.getoption("--tier"):
        chosen = [item for item in items if _is_in_tier(item, tier)]
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
        items[:] = chosen
    items.sort(key=lambda item: item.path.parent.name not in LONG_FOLDERS)


def _is_in_tier(item: pytest.Item, tier: str) -> bool:
    is_fault = item.get_closest_marker("fault_tier") is not None or is_fault_tier(item.nodeid)
    return is_fault == (tier == "faults") or (
        tier == "faults" and item.get_closest_marker("random_cases") is not None
    )


@pytest.fixture(autouse=True)
def _no_earlier_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test without messages that earlier tests of the process have logged at a limited rate."""
    monkeypatch.setattr(limited, "_episodes", {})


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> SegmentMaker:
    return SegmentMaker(tmp_path_factory.mktemp("segments"))


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
