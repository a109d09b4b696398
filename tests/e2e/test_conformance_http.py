"""Conformance of HTTP: each sample of raw bytes gets an acceptable answer, and the receiver survives."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.samples import decode
from tests.support.cases import each_case

CASES_FILE = Path(__file__).parents[1] / "conformance/http.jsonl"
READ_TIMEOUT_S = 10
MARKER = b"x-protobuf\xff"


@dataclass(frozen=True)
class Case:
    """Bytes to send, and the acceptable statuses."""

    id: str
    request: bytes
    answer: str


def read_cases() -> list[Case]:
    cases = [json.loads(line) for line in CASES_FILE.read_text().splitlines()]
    return [Case(case["id"], decode(case["request"]), case["expect"]["answer"]) for case in cases]


CASES = read_cases()


def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send the bytes, half-close, and read until the receiver closes."""
    with socket.create_connection(address, timeout=READ_TIMEOUT_S) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the receiver refused early; only its answer matters
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
    return [int(status) for status in re.findall(rb"(?:^|\n)HTTP/1\.[01] (\d{3}) ", raw)]


def acceptable(case: Case, raw: bytes) -> bool:
    received = statuses(raw)
    if "," in case.answer:
        return received == [int(status) for status in case.answer.split(",")]
    if not received:
        return case.answer == "close"
    allowed = [int(status) for status in re.findall(r"\d{3}", case.answer)] or [400]
    return received[0] in allowed


@each_case("case", CASES, ids=lambda case: case.id)
def test_raw_bytes_get_an_acceptable_answer(case: Case, receiver: ReceiverProcess) -> None:
    raw = exchange(receiver.address, case.request)

    assert acceptable(case, raw), (case.answer, raw[:300])


@each_case("case", CASES, ids=lambda case: case.id)
def test_error_response_has_a_message_and_echoes_no_input(case: Case, receiver: ReceiverProcess) -> None:
    raw = exchange(receiver.address, case.request)
    if not statuses(raw) or statuses(raw)[-1] in {200, 204} or case.id.startswith("H01HEAD"):
        return

    head, _, body = raw.rpartition(b"\r\n\r\n")
    assert b"content-type: application/" in head.lower()
    assert MARKER not in raw
    if b"application/json" in head:
        error: dict[str, Any] = json.loads(body)
        assert error["message"]
        assert error["code"] > 0
    else:
        assert body


def test_receiver_still_accepts_deliveries_after_all_samples(receiver: ReceiverProcess) -> None:
    assert receiver.post(b"{}").json() == {}
