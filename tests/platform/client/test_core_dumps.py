"""Core dumps of a process that calls the platform with a token."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("token", "expected"), [("tok_1", b"0"), ("", b"1")])
def test_process_that_has_a_token_dumps_no_core(token: str, expected: bytes) -> None:
    source = (
        "import ctypes\n"
        "from receiver.platform.client.http_calls import HttpCaller\n"
        "from receiver.platform.client.answers import PLATFORM\n"
        f"HttpCaller(PLATFORM, 'https://platform.example', {token!r})\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )

    dumpable = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True)

    assert dumpable.stdout.strip() == expected
