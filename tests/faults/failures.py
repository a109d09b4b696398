"""Failures between the writer and a ClickHouse server, one function each."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace

from tests.faults.proxy import Answer, Exchange, Failure, Proxy, Request

PAGE = b"<html><body>Service temporarily unavailable</body></html>"


def reset(exchange: Exchange) -> None:
    """The INSERT is not applied; the connection is reset."""
    exchange.reset()


def lost(exchange: Exchange) -> None:
    """The INSERT is applied; its response is lost."""
    exchange.forward()
    exchange.reset()


def hung(exchange: Exchange) -> None:
    """The request is read and never answered."""
    exchange.hang()


def lost_and_hung(exchange: Exchange) -> None:
    """The INSERT is applied; no response is sent."""
    exchange.forward()
    exchange.hang()


def half_of_the_headers(exchange: Exchange) -> None:
    """The INSERT is applied; half of the response headers are sent, then nothing."""
    head = exchange.forward().head
    exchange.send(head[: len(head) // 2])
    exchange.hang()


def closed_in_the_headers(exchange: Exchange) -> None:
    """The INSERT is applied; the connection is closed in the middle of the response headers."""
    head = exchange.forward().head
    exchange.send(head[: head.index(b"\r\n") + 2])
    exchange.end()


def closed_in_the_body(exchange: Exchange) -> None:
    """The connection is closed in the middle of the response body."""
    answer = exchange.forward()
    body = answer.body or b" " * 40
    exchange.send(Answer(answer.status, answer.headers, body).head, body[: len(body) // 2])
    exchange.end()


def hung_in_the_body(exchange: Exchange) -> None:
    """The response body stops in the middle and the connection stays open."""
    answer = exchange.forward()
    body = answer.body or b" " * 40
    exchange.send(Answer(answer.status, answer.headers, body).head, body[: len(body) // 2])
    exchange.hang()


def empty_success(exchange: Exchange) -> None:
    """A well-formed 200 whose body is empty, so that rows are missing."""
    exchange.answer(Answer(200, exchange.forward().headers))


def slow(seconds: float) -> Failure:
    """The INSERT is applied after a delay and answered."""

    def delay(exchange: Exchange) -> None:
        time.sleep(seconds)
        exchange.answer(exchange.forward())

    return delay


def exception(code: int, text: str = "injected", name: str = "INJECTED") -> str:
    """Format an exception as a server does."""
    return f"Code: {code}. DB::Exception: {text}. ({name}) (version 26.9.2.1)"


def error(code: int, text: str = "injected") -> Failure:
    """The INSERT is not applied; the response is this error."""
    answer = Answer(500, {"X-ClickHouse-Exception-Code": str(code)}, exception(code, text).encode())
    return lambda exchange: exchange.answer(answer)


def ok_but(body: str, **headers: str) -> Failure:
    """The INSERT is not applied; the response is a 200 that contains an error."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.answer(Answer(200, named, body.encode()))


def applied_ok_but(body: str) -> Failure:
    """The INSERT is applied; the response is a 200 whose body contains an error."""

    def apply_then_fail(exchange: Exchange) -> None:
        exchange.answer(Answer(200, exchange.forward().headers, body.encode()))

    return apply_then_fail


def exception_as_json(code: int) -> str:
    """Format an exception as `http_write_exception_in_output_format` does."""
    return json.dumps({"exception": exception(code)})


def compressed_exception(code: int) -> Failure:
    """A 200 whose body is an exception that a proxy compressed."""
    body = gzip.compress(exception(code).encode())
    return lambda exchange: exchange.answer(Answer(200, {"Content-Encoding": "gzip"}, body))


def page(status: int, **headers: str) -> Failure:
    """A proxy's own error page; the request does not reach the server."""
    named = {
        "Content-Type": "text/html",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return lambda exchange: exchange.answer(Answer(status, named, PAGE))


def empty_response(status: int) -> Failure:
    """A response without a body; the request does not reach the server."""
    return lambda exchange: exchange.answer(Answer(status))


def too_large(bytes_max: int) -> Failure:
    """A proxy's limit on the size of request bodies."""

    def limit(exchange: Exchange) -> None:
        if len(exchange.request.body) > bytes_max:
            exchange.answer(Answer(413, {"Content-Type": "text/html"}, PAGE))
        else:
            exchange.answer(exchange.forward())

    return limit


def of_version(version: str) -> Failure:
    """The server reports another version."""

    def replace_version(exchange: Exchange) -> None:
        body = exchange.request.body.replace(b"version()", f"'{version}'".encode())
        exchange.answer(exchange.proxy.ask(replace(exchange.request, body=body)))

    return replace_version


class RunsOn:
    """An INSERT that continues after its client was disconnected, until it was polled `polls` times."""

    def __init__(self, polls: int) -> None:
        self._polls = polls
        self._request: Request | None = None

    def install(self, proxy: Proxy) -> None:
        """Apply this to the next INSERT."""
        proxy.inject(self._insert, times=1)
        proxy.inject(self._poll, on="running")
        proxy.inject(self._kill, on="kill")

    def _insert(self, exchange: Exchange) -> None:
        self._request = exchange.request
        exchange.reset()

    def _poll(self, exchange: Exchange) -> None:
        body = exchange.request.body
        if self._request and not self._polls:
            exchange.proxy.ask(self._request)
            self._request = None
        if self._request:
            listed = f"(SELECT '{self._request.query_id}' AS query_id)".encode()
            body = body.replace(b"system.processes", listed)
        self._polls -= 1
        exchange.answer(exchange.proxy.ask(replace(exchange.request, body=body)))

    def _kill(self, exchange: Exchange) -> None:
        self._request = None
        exchange.answer(exchange.forward())


class ArrivesLate:
    """An INSERT that an intermediary delays until after its retry was answered."""

    def __init__(self) -> None:
        self._held: Request | None = None

    def install(self, proxy: Proxy) -> None:
        """Apply this to the next INSERT."""
        proxy.inject(self._insert, times=2)

    def _insert(self, exchange: Exchange) -> None:
        if self._held is None:
            self._held = exchange.request
            exchange.reset()
        answer = exchange.forward()
        exchange.proxy.ask(self._held)
        exchange.answer(answer)
