"""A receiver with an embedded store for the pages, and the address of a page."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.peers import MeasurementError
from benchmarks.processes import Cores, started

T = TypeVar("T")
Row = dict[str, Any]
WAIT_S = 120.0
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
        url = f"{self.pages}/trace/{trace_id}/outline"
        until(lambda: len(_json_lines(url)[0]["id"]) >= spans, f"{spans} spans of a trace")

    def wait_for(self, key: str, question: str, parameters: str) -> str:
        """Wait until a question of the API has a row, and return its value of a key."""
        url = f"{self.pages}/api/v1/{question}?{parameters}"
        return until(lambda: str(_json_lines(url)[0][key]), question)


def until(ask: Callable[[], T], what: str) -> T:
    """Ask until there is an answer that is true. An answer that cannot be read yet is none."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, LookupError):
            if found := ask():
                return found
        time.sleep(POLL_S)
    raise MeasurementError(f"{what}: not readable after {WAIT_S:.0f} s")


@contextmanager
def running_receiver(directory: Path) -> Iterator[Receiver]:
    """Start a receiver on free ports, and end it with the block."""
    ports = [
        part for flag in ("--listen", "--admin-listen", "--api-listen") for part in (flag, "127.0.0.1:0")
    ]
    config = directory / "trace-drain.toml"
    config.write_text("[api]\nsql = true\n")
    command = [sys.executable, "-m", "receiver.cli", "serve", "--config", str(config)]
    command += ["--data", str(directory), *ports]
    with started(command, directory / "log", core=Cores.all_of_this_machine().others):
        yield until(lambda: _ready(directory / "receiver.json"), "addresses of the receiver")


def _ready(state: Path) -> Receiver:
    urls = json.loads(state.read_text())["urls"]
    _body(urls["admin"] + "/readyz")
    return Receiver(urls["listen"], urls["api"])


def _json_lines(url: str) -> list[Row]:
    return [json.loads(line) for line in _body(url).splitlines()]


def _body(url: str) -> bytes:
    """Return an answer. Raises `OSError` for a status that is an error."""
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own address
        return bytes(answer.read())
