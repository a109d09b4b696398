"""The Python client against the API: rows, typed errors, incomplete answers, and the examples of the docs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped]  # noqa: ICN001 - the docs spell the name out
import polars  # noqa: ICN001 - as above
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from receiver import client as client_module
from receiver.client import ApiError, BusyError, Client, IncompleteError, LimitError, QuestionError
from tests.support import engines
from tests.support.api import api_over
from tests.support.segments import SegmentMaker

ROOT = Path(__file__).parents[1]
PROBLEM = b'{"detail":"too much","hint":"expected less","limit":"memory"}'


@pytest.fixture(scope="module")
def url(engine_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the API over four spans of today in another thread; yield its URL."""
    segment = SegmentMaker(tmp_path_factory.mktemp("segments")).make(0, 0, 0, 0)
    with engines.embedded(engine_dir) as store, api_over(store, token=lambda: "s3cret") as api:
        store.insert(segment.path, token="client#0", query_id="trace-drain-client#0")
        with served(api.application()) as url:
            yield url


@contextlib.contextmanager
def served(application: web.Application) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = TestServer(application)
    asyncio.run_coroutine_threadsafe(server.start_server(), loop).result(30)
    try:
        yield str(server.make_url("/")).rstrip("/")
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def server_that_answers(answer: bytes) -> Iterator[str]:
    """Answer one connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_rows_are_all_rows_of_the_answer(url: str) -> None:
    client = Client(url, token="s3cret")

    whole = client.rows("search", since="30d")
    limited = client.rows("search", since="30d", limit=3)

    assert len(list(whole)) == 4
    assert whole.end["cut"] is False
    assert len(list(limited)) == 3
    assert limited.end["cut"] is True


def test_question_without_arrow_refuses_it(url: str) -> None:
    with pytest.raises(ApiError) as refused:
        Client(url, token="s3cret").open("services", accept="application/vnd.apache.arrow.stream")

    assert refused.value.status == 406


def test_arrow_stream_with_too_many_rows_is_refused_with_the_limit(url: str) -> None:
    client = Client(url, token="s3cret")

    with pytest.raises(LimitError, match="over 3 spans match"):
        client.open("spans", accept="application/vnd.apache.arrow.stream", since="30d", limit=3)


def test_mistake_in_the_filter_is_an_error_with_its_column(url: str) -> None:
    with pytest.raises(QuestionError, match="did you mean 'service'") as refused:
        Client(url, token="s3cret").rows("search", filter="sevice=web")

    assert refused.value.problem["column"] == 1


def test_wrong_token_is_an_error(url: str) -> None:
    with pytest.raises(ApiError, match="token is missing or wrong") as refused:
        Client(url, token="other").rows("search")

    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, QuestionError), (422, LimitError), (429, BusyError), (503, BusyError), (500, ApiError)],
)
def test_status_decides_the_type_of_the_error(status: int, kind: type[ApiError]) -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(PROBLEM)}\r\n\r\n".encode()

    with server_that_answers(head + PROBLEM) as url, pytest.raises(ApiError) as refused:
        Client(url).rows("search")

    assert type(refused.value) is kind
    assert str(refused.value) == "too much; expected less"
    assert refused.value.problem["limit"] == "memory"


@pytest.mark.parametrize(
    "body",
    [b'{"a":1}\n', b'{"a":1}\n{"end":{"count":2}}\n', b'{"a":1}\n{"en', b""],
    ids=["no end line", "wrong count", "part of a line", "nothing"],
)
def test_incomplete_answer_is_an_error(body: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body

    with server_that_answers(answer) as url, pytest.raises(IncompleteError):
        list(Client(url).rows("search"))


def test_receiver_that_does_not_run_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(ApiError, match="does not answer"):
        Client(f"http://127.0.0.1:{port}").rows("search")


def test_client_is_short_enough_to_copy() -> None:
    assert Path(client_module.__file__).read_text().count("\n") <= 100


def test_examples_of_the_docs_run(url: str) -> None:
    _, _, section = (ROOT / "docs/query.md").read_text().partition("\n### From Python\n")
    examples = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    names: dict[str, Any] = {}

    for example in examples:
        here = example.replace(
            'Client("http://127.0.0.1:8318", token=TOKEN)', f'Client("{url}", token="s3cret")'
        )
        exec(compile(here, "docs/query.md", "exec"), names)  # noqa: S102 - our own example

    assert isinstance(names["spans"], pandas.DataFrame)
    assert isinstance(names["traces"], polars.DataFrame)
    assert names["durations"].columns == ["ServiceName", "Duration"]
    assert len(names["spans"]) == len(names["traces"]) == 4
