"""Core dumps of a process that has a token of the platform: they are forbidden."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from receiver.platform.installations.installations import Installations
from tests.support.installations import TOKEN, installation

ROOT = Path(__file__).parents[2]
SOURCE = """
import ctypes, json, os, pathlib, sys
from receiver.platform.client.answers import PLATFORM
from receiver.platform.client.http_calls import HttpCaller
from receiver.platform.installations.installations import Installations
from tests.support.installations import installation

directory = pathlib.Path(sys.argv[1])
cases = {
    "client without a token": lambda: HttpCaller(PLATFORM, "https://platform.example"),
    "client with a token": lambda: HttpCaller(PLATFORM, "https://platform.example", "tok_1"),
    "no installation": lambda: Installations(directory / "none"),
    "added installation": lambda: Installations(directory / "added").add(installation(), "token"),
    "stored installation": lambda: Installations(directory / "stored"),
}
for name, act in cases.items():
    if not os.fork():
        act()
        print(json.dumps([name, bool(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))]), flush=True)
        os._exit(0)
    os.wait()
"""
"""Prints for each case, in a process of its own, whether the process dumps core."""


def test_process_that_has_a_token_dumps_no_core(tmp_path: Path) -> None:
    Installations(tmp_path / "stored").add(installation(), TOKEN)

    printed = subprocess.run(
        [sys.executable, "-c", SOURCE, str(tmp_path)], check=True, capture_output=True, cwd=ROOT
    ).stdout

    assert dict(json.loads(line) for line in printed.splitlines()) == {
        "client without a token": True,
        "client with a token": False,
        "no installation": True,
        "added installation": False,
        "stored installation": False,
    }
