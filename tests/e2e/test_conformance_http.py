"""Every sample of raw bytes on a socket gets an acceptable answer, and the process lives on."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import Running
from tests.e2e.samples import decoded

CASES_FILE = Path(__file__).parents[1] / "conformance/http.jsonl"
READ_TIMEOUT_S = 10
MARKER = b"x-protobuf\xff"


@dataclass(frozen=True)
class Case:
    """Bytes for a socket, and the statuses that are acceptable."""

    id: str
    request: bytes
    answer: str


def read_cases() -> list[Case]:
    cases = [json.loads(line) for line in CASES_FILE.read_text().splitlines()]
    return [Case(case["id"], decoded(case["request"]), case["expect"]["answer"]) for case in cases]


CASES = read_cases()


def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send, say that nothing more comes, and read to the end."""
    with socket.create_connection(address, timeout=READ_TIMEOUT_S) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused while we were still sending: the answer is what counts
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def statuses(raw: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"(?:^|\n)HTTP/1\.[01] (\d{3}) ", raw)]


def acceptable(case: Case, raw: bytes) -> bool:
    found = statuses(raw)
    if "," in case.answer:
        return found == [int(status) for status in case.answer.split(",")]
    if not found:
        return case.answer == "close"
    wanted = [int(status) for status in re.findall(r"\d{3}", case.answer)] or [400]
    return found[0] in wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_raw_bytes_get_an_acceptable_answer(case: Case, receiver: Running) -> None:
    raw = exchange(receiver.address, case.request)

    assert acceptable(case, raw), (case.answer, raw[:300])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_error_is_a_status_that_echoes_nothing(case: Case, receiver: Running) -> None:
    raw = exchange(receiver.address, case.request)
    if not statuses(raw) or statuses(raw)[-1] in {200, 204} or case.id.startswith("H01HEAD"):
        return

    head, _, body = raw.rpartition(b"\r\n\r\n")
    assert b"content-type: application/" in head.lower()
    assert MARKER not in raw
    if b"application/json" in head:
        told: dict[str, Any] = json.loads(body)
        assert told["message"]
        assert told["code"] > 0
    else:
        assert body


def test_the_receiver_still_accepts(receiver: Running) -> None:
    assert receiver.post(b"{}").json() == {}
