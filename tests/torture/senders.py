"""Senders that behave as OTLP clients do: the same bytes again after 429, 502, 503, 504, reset or time-out.

Some give up after one try, so that deliveries exist which may have arrived, were never acknowledged and never
sent again. Some are cut off: the body is sent, the connection dropped before the answer, the body sent again.
Some are acknowledged and sent all the same, compressed anew and on another connection: see `copies`.
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

from tests.torture.copies import Copies, When, when_again
from tests.torture.oracle import LANES, PROTOBUF, Delivery, Oracle, repacked

RETRYABLE = frozenset({429, 502, 503, 504})
RIGHT = frozenset({200, 429, 503})
"""What valid input may be answered with; a reset is the other thing that may happen to it."""
ATTEMPT_TIMEOUT_S = 10.0
IMPATIENT_SHARE = 0.1
CUT_OFF_SHARE = 0.03


@dataclass(slots=True)
class Fate:
    """What became of one delivery, as its sender knows it."""

    attempts: int = 0
    acknowledged: int = 0
    """Answers 200."""


@dataclass
class Outcomes:
    """What all senders saw. Shared by threads: every change is one locked step."""

    fates: dict[int, Fate] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    """By status, or by how there was none."""
    wrong: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """What a 503 said, without its numbers."""
    refused_at_s: list[float] = field(default_factory=list)
    """When a connection was refused: only while there is no supervisor."""
    acknowledged: int = 0
    rejected_count: int = 0
    """Spans told as rejected, once for each acknowledged delivery."""
    retries: int = 0
    copies: Counter[When] = field(default_factory=Counter)
    """Deliveries sent again though they were acknowledged, by when; each was acknowledged again."""
    in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def tried(self, number: int) -> None:
        """A body is about to be sent."""
        with self.lock:
            fate = self.fates.setdefault(number, Fate())
            self.retries += fate.attempts > 0
            fate.attempts += 1
            self.in_flight += 1

    def copied(self, when: When) -> None:
        """What was acknowledged before was acknowledged again."""
        with self.lock:
            self.copies[when] += 1

    def explained(self, body: bytes) -> None:
        """An error came with this explanation, in either encoding."""
        words = max(re.findall(rb"[ -!#-~]{8,}", body), key=len, default=b"").decode()
        with self.lock:
            self.reasons[re.sub(r"\d+(\.\d+)?", "N", words)] += 1

    def answered(self, delivery: Delivery, answer: str, told_rejected: int | None) -> None:
        """The try has ended. `told_rejected`: of a 200, what it says was refused."""
        with self.lock:
            self.in_flight -= 1
            self.answers[answer] += 1
            if answer == "refused":
                self.refused_at_s.append(time.monotonic())
            if answer.isdigit() and int(answer) not in RIGHT:
                self.wrong.append(f"delivery {delivery.number} was answered {answer}")
            if told_rejected is None:
                return
            self.acknowledged += 1
            fate = self.fates[delivery.number]
            if not fate.acknowledged:
                self.rejected_count += told_rejected
            fate.acknowledged += 1
            if told_rejected != delivery.rejected_count:
                self.wrong.append(
                    f"delivery {delivery.number}: {told_rejected} spans told as rejected; "
                    f"expected {delivery.rejected_count}"
                )


@dataclass(frozen=True)
class Desk:
    """What all senders share."""

    oracle: Oracle
    port: int
    outcomes: Outcomes
    starts: Callable[[], int]
    """How often the receiver was started anew so far."""


class Sender(threading.Thread):
    """One client with one connection at a time."""

    def __init__(self, desk: Desk, lane: int, *, pause_s: float) -> None:
        super().__init__(name=f"sender-{lane}", daemon=True)
        self.issuing_ends = threading.Event()
        self.giving_up = threading.Event()
        self._desk, self._lane, self._pause_s = desk, lane, pause_s
        self._oracle, self._port, self._outcomes = desk.oracle, desk.port, desk.outcomes
        self._copies = Copies(desk.starts)
        self._numbers = itertools.count(lane, len(LANES))
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self.issuing_ends.is_set():
            self._issue(self.next())
            self._send_copies(is_end=False)
            self.issuing_ends.wait(self._pause_s)
        self._send_copies(is_end=True)
        self._drop()

    def _issue(self, delivery: Delivery) -> None:
        """Send something new, and see whether it is to come again."""
        habits = random.Random(f"{self._oracle.seed}/copies/{delivery.number}")
        when = when_again(habits)
        if when == "both at once":
            self._race(delivery)
        elif self.deliver(delivery):
            self._copies.note(delivery.number, when, habits)

    def _race(self, delivery: Delivery) -> None:
        """Send it twice at the same time, on two connections and so perhaps to two processes."""
        rival = Sender(self._desk, self._lane, pause_s=0)
        racing = threading.Thread(target=rival.deliver, args=(repacked(delivery),))
        racing.start()
        self.deliver(delivery)
        rival.giving_up.set()
        racing.join()
        rival._drop()
        if self._outcomes.fates[delivery.number].acknowledged > 1:
            self._outcomes.copied("both at once")

    def _send_copies(self, *, is_end: bool) -> None:
        for when, number in self._copies.due(is_end=is_end):
            self._drop()
            if self.deliver(repacked(self._oracle.delivery(number))):
                self._outcomes.copied(when)

    def next(self) -> Delivery:
        """The next of this lane."""
        return self._oracle.delivery(next(self._numbers))

    def deliver(self, delivery: Delivery) -> bool:
        """Send until it is acknowledged, or for as long as this sender has patience. Whether it was."""
        habits = random.Random(f"{self._oracle.seed}/habits/{delivery.number}")
        attempts_max = 1 if habits.random() < IMPATIENT_SHARE else 1_000
        is_cut_off = attempts_max > 1 and habits.random() < CUT_OFF_SHARE
        for attempt, delay_s in enumerate(itertools.islice(delays_s(habits), attempts_max), 1):
            answer = self._attempt(delivery, is_cut_off=is_cut_off and attempt == 1)
            if answer.isdigit() and int(answer) not in RETRYABLE:
                return answer == "200"
            if self.giving_up.is_set() or attempt == attempts_max:
                break
            self.giving_up.wait(delay_s)
        return False

    def _attempt(self, delivery: Delivery, *, is_cut_off: bool) -> str:
        self._outcomes.tried(delivery.number)
        told_rejected: int | None = None
        try:
            answer, told_rejected = self._post(delivery, is_cut_off=is_cut_off)
        except TimeoutError:
            answer = "time-out"
            self._drop()
        except ConnectionRefusedError:
            answer = "refused"
            self._drop()
        except (OSError, http.client.HTTPException):
            answer = "reset"
            self._drop()
        self._outcomes.answered(delivery, answer, told_rejected)
        return answer

    def _post(self, delivery: Delivery, *, is_cut_off: bool) -> tuple[str, int | None]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ATTEMPT_TIMEOUT_S)
        self._connection.request("POST", delivery.drain.path, delivery.body, delivery.headers)
        if is_cut_off:
            time.sleep(0.02)
            self._drop()
            return "cut off", None
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status == 200:
            return "200", rejected_in(body, delivery.headers["content-type"])
        self._outcomes.explained(body)
        return str(answer.status), None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def delays_s(habits: random.Random) -> Iterator[float]:
    """Pauses between tries: doubled up to 2 s, with jitter."""
    for power in itertools.count():
        yield min(2.0, 0.1 * 2 ** min(power, 8)) * habits.uniform(0.8, 1.2)


def rejected_in(body: bytes, content_type: str) -> int:
    """How many spans an answer says were refused."""
    if content_type == PROTOBUF:
        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    return int(json.loads(body).get("partialSuccess", {}).get("rejectedSpans", 0))
