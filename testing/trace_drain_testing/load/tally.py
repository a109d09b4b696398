"""Counters of a run: responses, latencies, and the acknowledged requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from trace_drain_testing.load.answer import ParsedAnswer
from trace_drain_testing.load.histogram import Histogram
from trace_drain_testing.load.requests import LoadRequest, Origin

MESSAGE_CHARS_MAX = 500
LATEST_ERROR_CHARS_MAX = 80
SAMPLES_MAX = 64
"""Number of requests, distributed over the run, from each of which one trace is compared with the store."""


class Sample(NamedTuple):
    """An acknowledged request that will be read back."""

    number: int
    origin: Origin


@dataclass
class Tally:
    spans_per_request: int
    latency: Histogram = field(default_factory=Histogram)
    """Latency of acknowledgements, counted from the time the request was due."""
    recent: Histogram = field(default_factory=Histogram)
    """Latency of acknowledgements in the current second."""
    answers: Counter[str] = field(default_factory=Counter)
    """Number of attempts by status, or by the error if there was no response."""
    messages: dict[str, str] = field(default_factory=dict)
    """Message of the first response of each status except 200."""
    latest_error: str = ""
    """Error of the latest failed attempt; cleared after a second with an acknowledgement."""
    acknowledged: bytearray = field(default_factory=bytearray)
    """One byte per request number: 1 if the request was acknowledged."""
    rejected: dict[int, int] = field(default_factory=dict)
    """Number of rejected spans that the response reports, by request number."""
    samples: list[Sample] = field(default_factory=list)
    bytes_sent: int = 0
    """Bytes of bodies sent, retries included."""
    retries: int = 0
    given_up: int = 0
    refused: int = 0
    unfinished: int = 0
    """Number of requests without a final response at the end of the run."""
    _sample_every: int = 1

    @property
    def spans(self) -> int:
        """Number of acknowledged spans, without rejected spans."""
        return self.latency.count * self.spans_per_request - sum(self.rejected.values())

    @property
    def lost(self) -> int:
        """Number of requests that ended without an acknowledgement."""
        return self.given_up + self.refused

    def accepted(self, request: LoadRequest, answer: ParsedAnswer, latency_s: float) -> None:
        """Record a 200."""
        self.latency.add(latency_s)
        self.recent.add(latency_s)
        number = request.number
        # In steps of 4,096, because growing for each request would be slow.
        if number >= len(self.acknowledged):
            self.acknowledged.extend(bytes(number + 4_096 - len(self.acknowledged)))
        self.acknowledged[number] = 1
        if rejected := answer.rejected_count:
            self.rejected[number] = rejected
        # Not a request with rejected spans, because it is unknown which spans are stored.
        elif number % self._sample_every == 0:
            self._sample(request)

    def _sample(self, request: LoadRequest) -> None:
        """Keep the request as a sample; above the limit, drop every second sample."""
        self.samples.append(Sample(request.number, request.origin))
        if len(self.samples) > SAMPLES_MAX:
            self._sample_every *= 2
            self.samples = [sample for sample in self.samples if sample.number % self._sample_every == 0]

    @property
    def was_answered(self) -> bool:
        """Whether any attempt got a response, of any status."""
        return any(key.isdigit() for key in self.answers)

    def answered(self, answer: ParsedAnswer) -> None:
        """Count a response, and record the message of a refusal."""
        status = str(answer.status)
        self.answers[status] += 1
        if answer.status != HTTPStatus.OK:
            message = answer.message[:MESSAGE_CHARS_MAX]
            self.messages.setdefault(status, message)
            self.latest_error = f"{status} {' '.join(message.split())[:LATEST_ERROR_CHARS_MAX]}".rstrip()

    def failed(self, reason: str) -> None:
        """Count an attempt without a response."""
        self.answers[reason] += 1
        self.latest_error = reason

    def next_second(self) -> None:
        """Start a new second; clear the latest error if the old second had an acknowledgement."""
        if self.recent.count:
            self.latest_error = ""
        self.recent = Histogram()
