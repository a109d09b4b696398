"""Tests of the modules that a command loads before its first line: loading them is most of its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_api import ApiHandler, receiver_with

DRIVERS = {"aiohttp", "chdb", "clickhouse_connect", "jinja2", "numpy", "urllib3"}


class OneTrace(ApiHandler):
    def lines_for(self, query: dict[str, str]) -> list[str]:
        assert query["filter"] == "service=web"
        return [json.dumps({"trace_id": "5b8e"}), json.dumps({"end": {"count": 1}})]


def run_and_list_modules(*arguments: str) -> tuple[str, set[str]]:
    """Run a command; return what it printed, and the modules that were loaded when it ended."""
    command = [sys.executable, "-X", "importtime", "-m", "receiver.cli", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return process.stdout, {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_list_of_commands_load_no_command(option: str) -> None:
    printed, modules = run_and_list_modules(option)

    assert "trace-drain" in printed
    assert (
        modules & {*DRIVERS, "asyncio", "msgspec", "receiver.logs", "receiver.settings", "structlog"} == set()
    )


def test_search_over_the_api_loads_no_driver(tmp_path: Path) -> None:
    with receiver_with(OneTrace, tmp_path):
        command = f"search service=web --data {tmp_path} --format json"
        printed, modules = run_and_list_modules(*command.split())

    assert json.loads(printed) == {"trace_id": "5b8e"}
    assert modules & {*DRIVERS, "receiver.engine.opening"} == set()
