"""What was seen while sending: counts, latencies, and which requests were acknowledged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from receiver.load.answer import Answer
from receiver.load.feed import Origin, Request
from receiver.load.histogram import Histogram

WORDS_CHARS_MAX = 500
TROUBLE_CHARS_MAX = 80
SAMPLES_MAX = 64
"""Requests of which a trace is compared, spread over the run."""


class Sample(NamedTuple):
    """An acknowledged request that will be read back."""

    number: int
    origin: Origin


@dataclass
class Tally:
    """Everything counted in one run."""

    spans_per_request: int
    latency: Histogram = field(default_factory=Histogram)
    """Of acknowledgements, from when the request was to be sent."""
    recent: Histogram = field(default_factory=Histogram)
    """The same, of the second that runs."""
    answers: Counter[str] = field(default_factory=Counter)
    """By status, or by how there was none."""
    said: dict[str, str] = field(default_factory=dict)
    """What the first answer of each refusing status said."""
    trouble: str = ""
    """Why a try failed, the latest, until the end of a second in which something is acknowledged."""
    acknowledged: bytearray = field(default_factory=bytearray)
    """By request number: 1."""
    rejected: dict[int, int] = field(default_factory=dict)
    """Request number → spans that its answer says were refused."""
    samples: list[Sample] = field(default_factory=list)
    bytes_sent: int = 0
    """Of bodies, tries counted."""
    retries: int = 0
    given_up: int = 0
    refused: int = 0
    unfinished: int = 0
    """Begun, and neither of these nor acknowledged when the run was ended."""
    _sample_every: int = 1

    @property
    def spans(self) -> int:
        """Spans acknowledged, without those told as refused."""
        return self.latency.count * self.spans_per_request - sum(self.rejected.values())

    @property
    def lost(self) -> int:
        """Requests that ended without an acknowledgement."""
        return self.given_up + self.refused

    def accepted(self, request: Request, answer: Answer, latency_s: float) -> None:
        """Note a 200."""
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
        """Keep every so many; when there are too many, every second one of those."""
        self.samples.append(Sample(request.number, request.origin))
        if len(self.samples) > SAMPLES_MAX:
            self._sample_every *= 2
            self.samples = [one for one in self.samples if one.number % self._sample_every == 0]

    @property
    def was_answered(self) -> bool:
        """Whether there was any answer, whatever it said."""
        return any(how.isdigit() for how in self.answers)

    def answered(self, answer: Answer) -> None:
        """Count an answer, and note what a refusal says."""
        status = str(answer.status)
        self.answers[status] += 1
        if answer.status != HTTPStatus.OK:
            words = answer.words[:WORDS_CHARS_MAX]
            self.said.setdefault(status, words)
            self.trouble = f"{status} {' '.join(words.split())[:TROUBLE_CHARS_MAX]}".rstrip()

    def failed(self, how: str) -> None:
        """Count a try without an answer."""
        self.answers[how] += 1
        self.trouble = how

    def next_second(self) -> None:
        """Forget the second that was; its trouble only if not all was."""
        if self.recent.count:
            self.trouble = ""
        self.recent = Histogram()


def counted(count: int, noun: str) -> str:
    """Return the count with its noun: `1 span`, `2,000 spans`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
