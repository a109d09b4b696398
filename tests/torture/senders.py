"""Senders that behave as OTLP clients: they resend the same bytes after 429, 502, 503, 504, reset, time-out.

Some give up after one attempt, so that some deliveries may have arrived, were not acknowledged and are not
repeated. Some disconnect after sending the body, without reading the answer, and send it again. Some send
acknowledged deliveries again, compressed differently and on another connection: see `copies`.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.torture.copies import Copies, When, resend_time
from tests.torture.oracle import LANES, PROTOBUF, Delivery, Oracle, recompress

RETRYABLE = frozenset({429, 502, 503, 504})
ALLOWED = frozenset({200, 429, 503})
"""Allowed answers to valid input; the connection may also be reset."""
ATTEMPT_TIMEOUT_S = 10.0
IMPATIENT_SHARE = 0.1
EARLY_DISCONNECT_SHARE = 0.03


@dataclass(slots=True)
class SendCounts:
    """How often a sender sent a delivery, and how often it was acknowledged."""

    attempts: int = 0
    acknowledged: int = 0
    """Number of 200 answers."""


@dataclass
class Outcomes:
    """Observations of all senders. Thread-safe: every change is made under the lock."""

    sent: dict[int, SendCounts] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    """By status, or by the kind of failure."""
    errors: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Texts of 503 answers, with numbers replaced."""
    refused_at_s: list[float] = field(default_factory=list)
    """Times at which a connection was refused: allowed only while there is no supervisor."""
    acknowledged: int = 0
    rejected_count: int = 0
    """Spans reported as rejected, counted once for each acknowledged delivery."""
    retries: int = 0
    copies: Counter[When] = field(default_factory=Counter)
    """Acknowledged deliveries that were sent again and acknowledged again, by time."""
    in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def attempt_started(self, number: int) -> None:
        """Record that a body is about to be sent."""
        with self.lock:
            counts = self.sent.setdefault(number, SendCounts())
            self.retries += counts.attempts > 0
            counts.attempts += 1
            self.in_flight += 1

    def record_copy(self, when: When) -> None:
        """Record that an acknowledged delivery was sent again and acknowledged again."""
        with self.lock:
            self.copies[when] += 1

    def record_reason(self, body: bytes) -> None:
        """Record the explanation in an error response, in either encoding."""
        text = max(re.findall(rb"[ -!#-~]{8,}", body), key=len, default=b"").decode()
        with self.lock:
            self.reasons[re.sub(r"\d+(\.\d+)?", "N", text)] += 1

    def attempt_ended(self, delivery: Delivery, answer: str, reported_rejected: int | None) -> None:
        """Record the end of an attempt. `reported_rejected`: rejected spans according to a 200."""
        with self.lock:
            self.in_flight -= 1
            self.answers[answer] += 1
            if answer == "refused":
                self.refused_at_s.append(time.monotonic())
            if answer.isdigit() and int(answer) not in ALLOWED:
                self.errors.append(f"delivery {delivery.number} was answered {answer}")
            if reported_rejected is None:
                return
            self.acknowledged += 1
            counts = self.sent[delivery.number]
            if not counts.acknowledged:
                self.rejected_count += reported_rejected
            counts.acknowledged += 1
            if reported_rejected != delivery.rejected_count:
                self.errors.append(
                    f"delivery {delivery.number}: {reported_rejected} spans reported as rejected; "
                    f"expected {delivery.rejected_count}"
                )


@dataclass(frozen=True)
class SenderContext:
    """Context that all senders share."""

    oracle: Oracle
    port: int
    outcomes: Outcomes
    starts: Callable[[], int]
    """Returns how often the receiver was started so far."""


class Sender(threading.Thread):
    """A client with one connection at a time."""

    def __init__(self, context: SenderContext, lane: int, *, pause_s: float) -> None:
        super().__init__(name=f"sender-{lane}", daemon=True)
        self.stop_issuing = threading.Event()
        self.give_up = threading.Event()
        self._context, self._lane, self._pause_s = context, lane, pause_s
        self._oracle, self._port, self._outcomes = context.oracle, context.port, context.outcomes
        self._copies = Copies(context.starts)
        self._numbers = itertools.count(lane, len(LANES))
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self.stop_issuing.is_set():
            self._issue(self.next())
            self._send_copies(is_end=False)
            self.stop_issuing.wait(self._pause_s)
        self._send_copies(is_end=True)
        self._disconnect()

    def _issue(self, delivery: Delivery) -> None:
        """Send a new delivery, and schedule its copy if it gets one."""
        random_ = random.Random(f"{self._oracle.seed}/copies/{delivery.number}")
        when = resend_time(random_)
        if when == "at the same time":
            self._send_twice(delivery)
        elif self.deliver(delivery):
            self._copies.note(delivery.number, when, random_)

    def _send_twice(self, delivery: Delivery) -> None:
        """Send a delivery twice at the same time, on two connections, possibly to two intakes."""
        second_sender = Sender(self._context, self._lane, pause_s=0)
        thread = threading.Thread(target=second_sender.deliver, args=(recompress(delivery),))
        thread.start()
        self.deliver(delivery)
        second_sender.give_up.set()
        thread.join()
        second_sender._disconnect()
        if self._outcomes.sent[delivery.number].acknowledged > 1:
            self._outcomes.record_copy("at the same time")

    def _send_copies(self, *, is_end: bool) -> None:
        for when, number in self._copies.due(is_end=is_end):
            self._disconnect()
            if self.deliver(recompress(self._oracle.delivery(number))):
                self._outcomes.record_copy(when)

    def next(self) -> Delivery:
        """Return the next delivery of this lane."""
        return self._oracle.delivery(next(self._numbers))

    def deliver(self, delivery: Delivery) -> bool:
        """Send until acknowledged, or until this sender gives up. Returns whether it was acknowledged."""
        random_ = random.Random(f"{self._oracle.seed}/habits/{delivery.number}")
        attempts_max = 1 if random_.random() < IMPATIENT_SHARE else 1_000
        disconnects_early = attempts_max > 1 and random_.random() < EARLY_DISCONNECT_SHARE
        for attempt, delay_s in enumerate(itertools.islice(delays_s(random_), attempts_max), 1):
            answer = self._attempt(delivery, disconnects_early=disconnects_early and attempt == 1)
            if answer.isdigit() and int(answer) not in RETRYABLE:
                return answer == "200"
            if self.give_up.is_set() or attempt == attempts_max:
                break
            self.give_up.wait(delay_s)
        return False

    def _attempt(self, delivery: Delivery, *, disconnects_early: bool) -> str:
        self._outcomes.attempt_started(delivery.number)
        reported_rejected: int | None = None
        try:
            answer, reported_rejected = self._post(delivery, disconnects_early=disconnects_early)
        except TimeoutError:
            answer = "time-out"
            self._disconnect()
        except ConnectionRefusedError:
            answer = "refused"
            self._disconnect()
        except (OSError, http.client.HTTPException):
            answer = "reset"
            self._disconnect()
        self._outcomes.attempt_ended(delivery, answer, reported_rejected)
        return answer

    def _post(self, delivery: Delivery, *, disconnects_early: bool) -> tuple[str, int | None]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ATTEMPT_TIMEOUT_S)
        self._connection.request("POST", delivery.drain.path, delivery.body, delivery.headers)
        if disconnects_early:
            time.sleep(0.02)
            self._disconnect()
            return "cut off", None
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status == 200:
            return "200", rejected_in(body, delivery.headers["content-type"])
        self._outcomes.record_reason(body)
        return str(answer.status), None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def delays_s(random_: random.Random) -> Iterator[float]:
    """Yield the delays between attempts: doubled up to 2 s, with jitter."""
    for power in itertools.count():
        yield min(2.0, 0.1 * 2 ** min(power, 8)) * random_.uniform(0.8, 1.2)


def rejected_in(body: bytes, content_type: str) -> int:
    """Return how many spans a response reports as rejected."""
    if content_type == PROTOBUF:
        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    return int(json.loads(body).get("partialSuccess", {}).get("rejectedSpans", 0))
