"""What may go wrong between the writer and a ClickHouse server, one function a fault."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace

from tests.faults.proxy import Answer, Exchange, Proxy, Request, Wrong

PAGE = b"<html><body>Service temporarily unavailable</body></html>"


def reset(exchange: Exchange) -> None:
    """Nothing was applied, nothing is answered."""
    exchange.reset()


def lost(exchange: Exchange) -> None:
    """It is applied, and the answer lost."""
    exchange.forward()
    exchange.reset()


def hung(exchange: Exchange) -> None:
    """Accepted, read, and never answered."""
    exchange.hang()


def lost_and_hung(exchange: Exchange) -> None:
    """It is applied, and no answer comes."""
    exchange.forward()
    exchange.hang()


def half_a_head(exchange: Exchange) -> None:
    """It is applied, and half of the headers are answered, then nothing."""
    head = exchange.forward().head
    exchange.send(head[: len(head) // 2])
    exchange.hang()


def half_a_head_and_the_end(exchange: Exchange) -> None:
    """It is applied, and the connection closed in the middle of the headers."""
    head = exchange.forward().head
    exchange.send(head[: head.index(b"\r\n") + 2])
    exchange.end()


def half_a_body(exchange: Exchange) -> None:
    """The body is cut in the middle, and the connection closed."""
    answer = exchange.forward()
    body = answer.body or b" " * 40
    exchange.send(Answer(answer.status, answer.headers, body).head, body[: len(body) // 2])
    exchange.end()


def half_a_body_and_no_more(exchange: Exchange) -> None:
    """The body stops in the middle, and the connection stays."""
    answer = exchange.forward()
    body = answer.body or b" " * 40
    exchange.send(Answer(answer.status, answer.headers, body).head, body[: len(body) // 2])
    exchange.hang()


def cut_at_a_block(exchange: Exchange) -> None:
    """A 200 that ends where an answer may end, and is not all of it: no rows."""
    exchange.answer(Answer(200, exchange.forward().headers))


def slow(seconds: float) -> Wrong:
    """It is applied late, and answered."""

    def wrong(exchange: Exchange) -> None:
        time.sleep(seconds)
        exchange.answer(exchange.forward())

    return wrong


def exception(code: int, text: str = "injected", name: str = "INJECTED") -> str:
    """Spell an exception as a server does."""
    return f"Code: {code}. DB::Exception: {text}. ({name}) (version 26.9.2.1)"


def error(code: int, text: str = "injected") -> Wrong:
    """Nothing is applied; it is answered with this error."""
    answer = Answer(500, {"X-ClickHouse-Exception-Code": str(code)}, exception(code, text).encode())
    return lambda exchange: exchange.answer(answer)


def ok_but(body: str, **headers: str) -> Wrong:
    """Nothing is applied; a 200 says otherwise somewhere."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.answer(Answer(200, named, body.encode()))


def applied_ok_but(body: str) -> Wrong:
    """It is applied, and then a 200 says otherwise in its body."""

    def wrong(exchange: Exchange) -> None:
        exchange.answer(Answer(200, exchange.forward().headers, body.encode()))

    return wrong


def exception_as_json(code: int) -> str:
    """Spell an exception as `http_write_exception_in_output_format` has it."""
    return json.dumps({"exception": exception(code)})


def packed_exception(code: int) -> Wrong:
    """A 200 whose body is an exception that a proxy has packed."""
    body = gzip.compress(exception(code).encode())
    return lambda exchange: exchange.answer(Answer(200, {"Content-Encoding": "gzip"}, body))


def page(status: int, **headers: str) -> Wrong:
    """A proxy's own page; the server never heard of it."""
    named = {
        "Content-Type": "text/html",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return lambda exchange: exchange.answer(Answer(status, named, PAGE))


def bare(status: int) -> Wrong:
    """The same without a word."""
    return lambda exchange: exchange.answer(Answer(status))


def too_large(bytes_max: int) -> Wrong:
    """A proxy's ceiling on bodies."""

    def wrong(exchange: Exchange) -> None:
        if len(exchange.request.body) > bytes_max:
            exchange.answer(Answer(413, {"Content-Type": "text/html"}, PAGE))
        else:
            exchange.answer(exchange.forward())

    return wrong


def of_version(version: str) -> Wrong:
    """The server says it is another version than it is."""

    def wrong(exchange: Exchange) -> None:
        body = exchange.request.body.replace(b"version()", f"'{version}'".encode())
        exchange.answer(exchange.proxy.ask(replace(exchange.request, body=body)))

    return wrong


class RunsOn:
    """An INSERT that goes on after its client was cut off, until it was looked at so often."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self._request: Request | None = None

    def meet(self, proxy: Proxy) -> None:
        """Let the next INSERT be it."""
        proxy.meet(self._insert, times=1)
        proxy.meet(self._look, on="running")
        proxy.meet(self._kill, on="kill")

    def _insert(self, exchange: Exchange) -> None:
        self._request = exchange.request
        exchange.reset()

    def _look(self, exchange: Exchange) -> None:
        body = exchange.request.body
        if self._request and not self._looks:
            exchange.proxy.ask(self._request)
            self._request = None
        if self._request:
            listed = f"(SELECT '{self._request.query_id}' AS query_id)".encode()
            body = body.replace(b"system.processes", listed)
        self._looks -= 1
        exchange.answer(exchange.proxy.ask(replace(exchange.request, body=body)))

    def _kill(self, exchange: Exchange) -> None:
        self._request = None
        exchange.answer(exchange.forward())


class ArrivesLate:
    """An INSERT that somebody before the server holds back until its repetition was answered."""

    def __init__(self) -> None:
        self._held: Request | None = None

    def meet(self, proxy: Proxy) -> None:
        """Let the next INSERT be it."""
        proxy.meet(self._insert, times=2)

    def _insert(self, exchange: Exchange) -> None:
        if self._held is None:
            self._held = exchange.request
            exchange.reset()
        answer = exchange.forward()
        exchange.proxy.ask(self._held)
        exchange.answer(answer)
