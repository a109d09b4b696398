"""Counters of a run: answers, latencies, and the acknowledged requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from receiver.load.answer import Answer
from receiver.load.histogram import Histogram
from receiver.load.requests import Origin, Request

WORDS_CHARS_MAX = 500
TROUBLE_CHARS_MAX = 80
SAMPLES_MAX = 64
"""Number of requests, spread over the run, of which a trace is compared with the store."""


class Sample(NamedTuple):
    """An acknowledged request that will be read back."""

    number: int
    origin: Origin


@dataclass
class Tally:
    """Everything counted in one run."""

    spans_per_request: int
    latency: Histogram = field(default_factory=Histogram)
    """Latency of acknowledgements, counted from the time the request was due."""
    recent: Histogram = field(default_factory=Histogram)
    """The same for the current second."""
    answers: Counter[str] = field(default_factory=Counter)
    """Number of tries by status, or by the reason why there was no answer."""
    said: dict[str, str] = field(default_factory=dict)
    """Status → message of its first answer, for all statuses but 200."""
    trouble: str = ""
    """Why the latest try failed; cleared after a second with an acknowledgement."""
    acknowledged: bytearray = field(default_factory=bytearray)
    """1 at the number of each acknowledged request."""
    rejected: dict[int, int] = field(default_factory=dict)
    """Request number → rejected spans that its answer reports."""
    samples: list[Sample] = field(default_factory=list)
    bytes_sent: int = 0
    """Bytes of bodies sent, retries included."""
    retries: int = 0
    given_up: int = 0
    refused: int = 0
    unfinished: int = 0
    """Requests without a final answer at the end of the run."""
    _sample_every: int = 1

    @property
    def spans(self) -> int:
        """Number of acknowledged spans, without rejected spans."""
        return self.latency.count * self.spans_per_request - sum(self.rejected.values())

    @property
    def lost(self) -> int:
        """Number of requests that ended without an acknowledgement."""
        return self.given_up + self.refused

    def accepted(self, request: Request, answer: Answer, latency_s: float) -> None:
        """Record a 200."""
        self.latency.add(latency_s)
        self.recent.add(latency_s)
        number = request.number
        if number >= len(self.acknowledged):
            self.acknowledged.extend(bytes(number + 4_096 - len(self.acknowledged)))
        self.acknowledged[number] = 1
        if rejected := answer.rejected_count:
            self.rejected[number] = rejected
        elif number % self._sample_every == 0:
            self._sample(request)

    def _sample(self, request: Request) -> None:
        """Keep the request as a sample; above the limit, drop every second sample."""
        self.samples.append(Sample(request.number, request.origin))
        if len(self.samples) > SAMPLES_MAX:
            self._sample_every *= 2
            self.samples = [sample for sample in self.samples if sample.number % self._sample_every == 0]

    @property
    def was_answered(self) -> bool:
        """Whether any try got an answer, of any status."""
        return any(key.isdigit() for key in self.answers)

    def answered(self, answer: Answer) -> None:
        """Count an answer, and record the message of a refusal."""
        status = str(answer.status)
        self.answers[status] += 1
        if answer.status != HTTPStatus.OK:
            words = answer.words[:WORDS_CHARS_MAX]
            self.said.setdefault(status, words)
            self.trouble = f"{status} {' '.join(words.split())[:TROUBLE_CHARS_MAX]}".rstrip()

    def failed(self, reason: str) -> None:
        """Count a try without an answer."""
        self.answers[reason] += 1
        self.trouble = reason

    def next_second(self) -> None:
        """Start a new second; clear the latest error if the old second had an acknowledgement."""
        if self.recent.count:
            self.trouble = ""
        self.recent = Histogram()


def counted(count: int, noun: str) -> str:
    """Return the count with its noun: `1 span`, `2,000 spans`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
