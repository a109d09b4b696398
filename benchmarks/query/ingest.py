"""Ingest beside queries: the latency of acknowledgements without and with clients that ask heavy questions.

The receiver has the embedded store, so that queries and the intake share all cores and the disk. Every client
has an address of its own, because the API limits the queries of one address.
"""

from __future__ import annotations

import http.client
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http import HTTPStatus
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from benchmarks.long.disk import Probe
from benchmarks.measure import load
from benchmarks.peers import MeasurementError, Running, run_receiver
from benchmarks.processes import Cores
from benchmarks.query.measure import Log
from benchmarks.query.results import IngestLatency, IngestPlan
from receiver.client import BusyError, Client

CLIENTS = 8
FILL_BODY = ("--spans", "520", "--connections", "8")
LOAD_BODY = ("--spans", "50", "--connections", "8")
FILL_SPANS_PER_REQUEST = 520
FILL_S_MAX = 600.0
POLL_S = 1.0
ANSWER_S_MAX = 120.0
READ_BYTES = 1 << 20
HEAVY: Sequence[tuple[str, Mapping[str, str]]] = (
    ("search", {"filter": 'name=~".*[xyz]{7}"'}),
    ("shifts", {"filter": "status=error"}),
    ("export", {"filter": "", "format": "csv"}),
    ("spans", {"filter": 'span.http.route=~".*[xyz]{7}"'}),
    ("red", {"by": "span.user.id", "spans": "all"}),
    ("service-map", {}),
    ("errors", {}),
    ("attributes", {"key": "url.path"}),
)
"""Question and parameters. Each client begins with another question and asks all in turn."""


def measure_ingest(plan: IngestPlan, parent: Path, log: Log) -> list[IngestLatency]:
    """Fill a store, then load the receiver in alternate rounds without and with queries."""
    cores = Cores.all_of_this_machine()
    with tempfile.TemporaryDirectory(prefix="ingest-", dir=parent) as name:
        directory = Path(name)
        for running in run_receiver(directory, "embedded", cores.receiver):
            _fill(running, plan.stored_spans, cores)
            log(f"{plan.stored_spans:,} spans stored")
            return [
                _round(plan, running, directory, cores, log, clients=clients)
                for _ in range(plan.rounds)
                for clients in (0, CLIENTS)
            ]
    raise MeasurementError("the receiver did not start")


def _fill(running: Running, spans: int, cores: Cores) -> None:
    requests = -(-spans // FILL_SPANS_PER_REQUEST)
    sent = load(running.url, cores, [*FILL_BODY, "--requests", str(requests)])["spans"]
    deadline_s = time.monotonic() + FILL_S_MAX
    while _stored_spans(running) < sent:
        if time.monotonic() > deadline_s:
            raise MeasurementError(f"{sent} spans were not stored within {FILL_S_MAX:g} s")
        time.sleep(POLL_S)


def _stored_spans(running: Running) -> int:
    try:
        rows = Client(running.api_url).rows("services", since="1d", until="0s", limit=100_000)
        return sum(row["spans"] for row in rows)
    # The receiver accepts spans before it has created the tables.
    except BusyError:
        return 0


def _round(  # noqa: PLR0913 - the parts of a round
    plan: IngestPlan, running: Running, directory: Path, cores: Cores, log: Log, *, clients: int
) -> IngestLatency:
    probe = Probe(directory)
    options = [*LOAD_BODY, "--rate", f"{plan.rate:.0f}", "--duration", str(plan.seconds)]
    with probe.running(), asking(running.api_url, clients) as counts:
        report = load(running.url, cores, options)
    latency = report["latency_ms"]
    measured = IngestLatency(
        clients=clients,
        requests=report["requests"],
        p50_ms=latency["p50"],
        p99_ms=latency["p99"],
        max_ms=latency["max"],
        answers=counts.answers.value,
        refused=counts.refused.value,
        sync_p99_ms=probe.latency().p99_ms or 0.0,
    )
    log(
        f"{clients} clients: p50 {measured.p50_ms:.1f} ms, p99 {measured.p99_ms:.1f} ms, "
        f"{measured.answers} answers, p99 of a sync {measured.sync_p99_ms:.1f} ms"
    )
    return measured


class Counts(NamedTuple):
    """Numbers of answers to all clients, shared with their process."""

    answers: Synchronized[int]
    refused: Synchronized[int]


@contextmanager
def asking(api_url: str, clients: int) -> Iterator[Counts]:
    """Let clients ask heavy questions in a loop until the block ends.

    They run in a process of their own, so that they do not slow down the probe of the disk.
    """
    context = get_context("spawn")
    stop, counts = context.Event(), Counts(context.Value("L", 0), context.Value("L", 0))
    process = context.Process(target=ask_all, args=(api_url, clients, stop, counts))
    process.start()
    try:
        yield counts
    finally:
        stop.set()
        process.join()
    if process.exitcode:
        raise MeasurementError(f"the clients exited with {process.exitcode}; expected 0")


def ask_all(api_url: str, clients: int, stop: Event, counts: Counts) -> None:
    """Run the clients, a thread each, until `stop` is set."""
    threads = [
        threading.Thread(target=_ask, args=(api_url, number, stop, counts)) for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask(api_url: str, number: int, stop: Event, counts: Counts) -> None:
    """Ask one question after the other. Each client has another address of the loopback network."""
    host = urllib.parse.urlsplit(api_url)
    asked = number
    while not stop.is_set():
        question, parameters = HEAVY[asked % len(HEAVY)]
        asked += 1
        query = urllib.parse.urlencode({"since": "1d", "until": "0s", **parameters})
        connection = http.client.HTTPConnection(
            host.hostname or "", host.port, timeout=ANSWER_S_MAX, source_address=(f"127.0.0.{number + 2}", 0)
        )
        with closing(connection):
            connection.request("GET", f"/api/v1/{question}?{query}")
            answer = connection.getresponse()
            while answer.read(READ_BYTES):
                # The receiver cancels a query whose client disconnects.
                if stop.is_set():
                    return
            counted = counts.answers if answer.status == HTTPStatus.OK else counts.refused
            with counted.get_lock():
                counted.value += 1
