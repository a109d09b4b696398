"""Metrics and checks of all processes, read from the receiver's own admin port.

The store process, which serves the pages, has its own metrics only; the supervisor merges all processes.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.error import HTTPError

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from receiver.config.addresses import parse_address

TIMEOUT_S = 2.0
PREFIX = "trace_drain_"
ANSWER_BYTES_MAX = 16 << 20
"""Maximum size of a response of the admin port; the rest is not read."""


class Sample(NamedTuple):
    """A value of a metric."""

    name: str
    """Name without the common prefix; a counter ends in `_total`."""
    labels: dict[str, str]
    value: float


class Check(msgspec.Struct, frozen=True):
    """A check of a process."""

    process: str
    name: str
    reason: str
    """Description of the problem; empty if there is none."""


class _Readiness(msgspec.Struct, frozen=True):
    checks: tuple[Check, ...]


class AdminReport(NamedTuple):
    """Metrics and checks that the admin port reports."""

    samples: tuple[Sample, ...]
    checks: tuple[Check, ...] = ()

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over the samples with these labels."""
        return sum(sample.value for sample in self._matching(name, labels))

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Return the sums of a metric by a label, without those that are 0."""
        sums: dict[str, float] = {}
        for sample in self._matching(name, labels):
            sums[sample.labels[label]] = sums.get(sample.labels[label], 0) + sample.value
        return {value: total for value, total in sorted(sums.items()) if total}

    def _matching(self, name: str, labels: dict[str, str]) -> Iterator[Sample]:
        return (
            sample
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def read_admin_port(address: str) -> AdminReport | None:
    """Read metrics and checks; `None` if the admin port does not answer in time. `address`: HOST:PORT."""
    url = f"http://{parse_address(address).to_connect}"
    with suppress(OSError, ValueError, msgspec.DecodeError):
        metrics, readiness = _get(f"{url}/metrics"), _get(f"{url}/readyz")
        return AdminReport(
            tuple(_samples(metrics.decode())), msgspec.json.decode(readiness, type=_Readiness).checks
        )
    return None


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - our own port
    # Bypasses the proxies of the environment, because the address is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(ANSWER_BYTES_MAX)
    # A receiver that is not ready answers 503 with the same report.
    except HTTPError as not_ready:
        with not_ready:
            body = not_ready.read(ANSWER_BYTES_MAX)
    return body


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield Sample(sample.name.removeprefix(PREFIX), sample.labels, sample.value)
