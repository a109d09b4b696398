"""A receiver with an embedded store for the pages, and the address of a page."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import MeasurementError
from benchmarks.processes import Cores, started

READY_S = STORED_S = 300.0
POLL_S = 0.2


class Receiver(NamedTuple):
    """Addresses of a running receiver."""

    intake: str
    pages: str

    def send(self, bodies: Iterable[bytes]) -> None:
        """Send requests."""
        for body in bodies:
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(self.intake + "/v1/traces", body, headers)  # noqa: S310 - our own address
            with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
                answer.read()

    def wait_until_stored(self, trace_id: str, spans: int) -> None:
        """Wait until every span of a trace can be read."""
        deadline = time.monotonic() + STORED_S
        while _span_count(f"{self.pages}/trace/{trace_id}/outline") < spans:
            if time.monotonic() > deadline:
                raise MeasurementError(f"trace '{trace_id}' is not readable after {STORED_S:.0f} s")
            time.sleep(POLL_S)


@contextmanager
def running_receiver(directory: Path) -> Iterator[Receiver]:
    """Start a receiver on free ports, and end it with the block."""
    ports = [
        part for flag in ("--listen", "--admin-listen", "--api-listen") for part in (flag, "127.0.0.1:0")
    ]
    command = [sys.executable, "-m", "receiver.cli", "serve", "--data", str(directory), *ports]
    with started(command, directory / "log", core=Cores.all_of_this_machine().others):
        deadline = time.monotonic() + READY_S
        while not (found := _ready(directory / "receiver.json")):
            if time.monotonic() > deadline:
                raise MeasurementError(f"the receiver is not ready after {READY_S:.0f} s")
            time.sleep(POLL_S)
        yield found


def _ready(state: Path) -> Receiver | None:
    try:
        urls = json.loads(state.read_text())["urls"]
        with urllib.request.urlopen(urls["admin"] + "/readyz") as answer:  # noqa: S310 - our own address
            return Receiver(urls["listen"], urls["api"]) if answer.status == HTTPStatus.OK else None
    except (OSError, ValueError, KeyError):
        return None


def _span_count(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own address
            return len(json.loads(answer.read())["id"])
    except urllib.error.HTTPError:
        return 0
