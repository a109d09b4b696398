"""Queries of commands: sent to the API of a running receiver, or else to the store itself.

Only one process can open the embedded engine, so commands always prefer the API of a running receiver.
"""

from __future__ import annotations

import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec
import orjson

from receiver.cli.shell.options import data_dir_of, serve_command
from receiver.cli.shell.readiness import note_when_slow, require_store_process
from receiver.config.checks import require_engine
from receiver.console.queries.limits import LimitedLines, limit_exceeded
from receiver.engine.error_codes import NO_TABLE_CODES
from receiver.engine.store import Store
from receiver.errors import CommandFailed, OperatorError, StoreTrouble
from receiver.http.media_types import JSON, JSON_LINES
from receiver.printable import harmless_text
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.supervisor.state import ReceiverState, running_receiver

Row = dict[str, Any]
Item = TypeVar("Item")

TIMEOUT_S = 90
MEMORY_BYTES_MAX = 1 << 20
"""Part of the store's result that is kept in memory; the rest goes to a temporary file."""
PIECE_BYTES = 1 << 18
"""Number of bytes of a response that are read at a time."""
NO_MEMBERS = b"{}"
"""Body of a POST without parameters."""
TOKEN_FROM = "--config FILE of the receiver, or TRACE_DRAIN_API_TOKEN_FILE in the environment"  # noqa: S105 - an option and a variable


class NothingFound(CommandFailed):
    """The receiver responded with 404."""


class AnswerCut(CommandFailed):
    """The response is incomplete."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"the receiver's answer ended after {counted(count, 'line')} without the last line, which has "
            "their count; the receiver's log has the error"
        )


class NotOurAnswer(CommandFailed):
    """Another server or a proxy responded instead of the receiver."""

    def __init__(self, expected: str, problem: str) -> None:
        super().__init__(
            f"the answer is not from a receiver: {problem}; expected {expected} from a receiver of the "
            "version of this command, without a proxy that answers in its place"
        )


class NotReady(CommandFailed):
    """The receiver responded with 503: it is starting, or its store is unavailable."""


class NotDone(CommandFailed):
    """The receiver responded with 409: the action is impossible now."""


def required_receiver(settings: Settings) -> ReceiverState:
    """Return the running receiver. Raises `CommandFailed` if none runs on the data directory."""
    state = running_receiver(settings)
    if state is None:
        raise CommandFailed(
            f"no receiver runs on '{settings.data_dir}'; start it with `{serve_command(settings)}`"
        )
    return state


def require_receiver(settings: Settings) -> None:
    """Raise `CommandFailed` if the store is embedded and no receiver runs.

    Without a receiver no spans arrive, and a command that has the store open would keep one from starting.
    """
    if settings.store.url == "embedded" and running_receiver(settings) is None:
        raise CommandFailed(f"no receiver runs; `{serve_command(settings)}` starts one")


@contextmanager
def store_of(settings: Settings, *, is_in_use: bool = False) -> Iterator[Store]:
    """Open the store itself, while no receiver runs. An embedded store must exist already.

    `is_in_use`: a receiver runs on the data directory, with another store.
    """
    embedded = settings.store.url == "embedded"
    require_engine(settings)
    data_dir = data_dir_of(settings) if embedded else Path(settings.data_dir)
    if embedded and not (data_dir / "store").is_dir():
        raise CommandFailed(f"no embedded store in '{data_dir}'; `{serve_command(settings)}` creates it")
    # By name, because the drivers take longer to load than a running receiver takes to answer.
    opening = import_module("receiver.engine.opening")
    # The lock keeps a receiver from starting while this command has the engine open.
    with opening.claimed(data_dir) if embedded and not is_in_use else nullcontext():
        store: Store = opening.open_store(settings, disk_free_min=lambda: settings.journal.disk_free_min)
        try:
            yield store
        except StoreTrouble as trouble:
            if trouble.code in NO_TABLE_CODES:
                raise CommandFailed("the store has no tables; run `trace-drain schema apply`") from trouble
            if exceeded := limit_exceeded(trouble):
                raise CommandFailed(str(exceeded)) from trouble
            if trouble.advice:
                raise CommandFailed(f"the store: {trouble.label}") from trouble
            if not embedded and trouble.code is None:
                raise CommandFailed(
                    f"the store: {trouble.label}; expected ClickHouse's HTTP interface there (store.url)"
                ) from trouble
            raise CommandFailed(f"the store: {trouble}") from trouble
        finally:
            store.close()


def receiver_or_store(
    settings: Settings,
    of_receiver: Callable[[ReceiverState], Iterable[Item]],
    of_store: Callable[[Store], Iterable[Item]],
) -> Iterator[Item]:
    """Yield a result from the running receiver, or else from the store, which is open meanwhile."""
    state = running_receiver(settings)
    if state is not None:
        yield from of_receiver(state)
        return
    with store_of(settings) as store:
        yield from of_store(store)


class ResultRows:
    """Rows of a result with a limit. The other attributes are valid after the last row."""

    def __init__(
        self,
        settings: Settings,
        path: str,
        query: Mapping[str, str],
        of_store: Callable[[Store], LimitedLines],
        **parts: Unpack[RequestParts],
    ) -> None:
        """`of_store`: runs the query without a receiver."""
        self._settings = settings
        self._of_store = of_store
        self._end: dict[str, Any] = {}
        self._request: RequestParts = {**parts, "end": self._end}
        self._path, self._query = path, query
        self.count = 0

    def __iter__(self) -> Iterator[Row]:
        for row in receiver_or_store(self._settings, self._rows_of_receiver, self._rows_of_store):
            self.count += 1
            yield row

    def _rows_of_receiver(self, state: ReceiverState) -> Iterator[Row]:
        return query_receiver(self._settings, state, self._path, self._query, **self._request)

    def _rows_of_store(self, store: Store) -> Iterator[Row]:
        lines = self._of_store(store)
        yield from parsed_rows(lines.pieces())
        # Known only after all rows were read.
        self._end.update(cut=lines.is_cut, close_keys=lines.close_keys)

    @property
    def is_cut(self) -> bool:
        """Return whether more rows match than the limit."""
        return bool(self._end.get("cut"))

    @property
    def close_keys(self) -> list[str]:
        """Return stored attributes whose keys are similar to those of a filter without a match."""
        keys: list[str] = self._end.get("close_keys", [])
        return keys


class RequestParts(TypedDict, total=False):
    """Parts of a request that few requests have, and of its response."""

    method: str
    """GET, if omitted."""
    body: bytes
    """JSON, for a POST."""
    end: dict[str, Any]
    """Receives the content of the last line."""
    document: type | None
    """Type of a response that is a single JSON document; without it, the response has lines."""


def query_receiver(
    settings: Settings,
    state: ReceiverState,
    path: str,
    query: Mapping[str, str],
    **parts: Unpack[RequestParts],
) -> Iterator[Row]:
    """Query the running receiver; yield one object for each line of its response."""
    require_store_process(state)
    rows = query_url(state.api_url, settings.api_token, path, query, **parts)
    with note_when_slow(state):
        # Only the first row may take long: it comes after the query has run.
        first = next(rows, None)
    if first is not None:
        yield first
        yield from rows


def query_url(
    url: str,
    token: str,
    path: str,
    query: Mapping[str, str],
    *,
    token_from: str = TOKEN_FROM,
    **parts: Unpack[RequestParts],
) -> Iterator[Row]:
    """Query the API at this URL. An empty token is not sent. `token_from`: how an operator configures it."""
    document = parts.get("document")
    request = _request(url, path, query, parts.get("method", "GET"), parts.get("body", NO_MEMBERS))
    with _response_to(request, token, token_from) as response:
        _require_content_type(response, JSON_LINES if document is None else JSON)
        if document is None:
            yield from _whole(response, parts.get("end"))
        else:
            yield _checked(response.read(), document)


def _require_content_type(response: HTTPResponse, expected: str) -> None:
    content_type = response.headers.get_content_type()
    if content_type != expected:
        raise NotOurAnswer(expected, f"its content type is '{harmless_text(content_type)}'")


def _checked(body: bytes, document: type) -> dict[str, Any]:
    """Parse a JSON document. Raises `NotOurAnswer` unless it has the fields of the type."""
    try:
        content: dict[str, Any] = orjson.loads(body)
        msgspec.convert(content, document)
    except (ValueError, msgspec.ValidationError) as error:
        raise NotOurAnswer(JSON, "its content has another form") from error
    return content


def download(  # noqa: PLR0913 - the request, and the expected response
    settings: Settings,
    state: ReceiverState,
    path: str,
    query: Mapping[str, str],
    content_type: str,
    *,
    body: bytes | None = None,
) -> Iterator[bytes]:
    """Query the running receiver for a response that is not JSON; raise if it ends early.

    `body`: JSON, for a POST.
    """
    require_store_process(state)
    method = "GET" if body is None else "POST"
    request = _request(state.api_url, path, query, method, body or NO_MEMBERS)
    with _response_to(request, settings.api_token, TOKEN_FROM) as response:
        _require_content_type(response, content_type)
        # `read` with a size raises at a chunked body whose connection closes early; other methods do not.
        yield from iter(lambda: response.read(PIECE_BYTES), b"")


def _request(
    url: str, path: str, query: Mapping[str, str], method: str, body: bytes = NO_MEMBERS
) -> urllib.request.Request:
    text = urllib.parse.urlencode(query)
    url = f"{url.rstrip('/')}{path}{'?' if text else ''}{text}"
    request = urllib.request.Request(url, method=method)  # noqa: S310 - our own receiver
    if method == "POST":
        request.data = body
        # The API requires it of each POST, since a page of another site cannot send it without a preflight.
        request.add_header("Content-Type", JSON)
    return request


@contextmanager
def _response_to(request: urllib.request.Request, token: str, token_from: str) -> Iterator[HTTPResponse]:
    """Send a request and yield its response. Raises for an error of the receiver, or of the connection."""
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - our own receiver
            yield response
    # Before OSError, because it is a subclass of it.
    except urllib.error.HTTPError as refusal:
        raise _error_of(refusal, token, token_from) from refusal
    except (OSError, ValueError, HTTPException) as error:
        raise CommandFailed(
            f"the receiver at {request.full_url} does not answer completely; expected a complete answer, "
            f"with its first byte within {TIMEOUT_S} s"
        ) from error


def _whole(lines: Iterable[bytes], end: dict[str, Any] | None) -> Iterator[Row]:
    """Yield one object for each line. Raises `AnswerCut` unless the last line confirms their number.

    The standard library does not report a chunked body whose connection closes early.
    """
    count = 0
    try:
        for line in lines:
            row = orjson.loads(line)
            # Another server responded, such as a proxy.
            if not isinstance(row, dict):
                break
            if row.keys() == {"end"}:
                if row["end"]["count"] != count:
                    break
                if end is not None:
                    end.update(row["end"])
                return
            yield row
            count += 1
    except (OSError, ValueError, HTTPException) as error:
        raise AnswerCut(count) from error
    raise AnswerCut(count)


def parsed_rows(pieces: Iterator[bytes]) -> Iterator[Row]:
    """Yield one object for each line of a result of the store itself.

    The result is read completely first, because a slow terminal would use up the time limit of the query.
    """
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES_MAX) as result:
        result.writelines(pieces)
        result.seek(0)
        for line in result:
            yield orjson.loads(line)


def _error_of(refusal: urllib.error.HTTPError, token: str, token_from: str) -> OperatorError:
    if refusal.code == HTTPStatus.UNAUTHORIZED:
        refusal.close()
        problem = "rejects this token" if token else "requires a token"
        return OperatorError(f"the receiver's API {problem}; expected {token_from}")
    # A mistake of the operator, not a failure: the exit code differs.
    if refusal.code == HTTPStatus.BAD_REQUEST:
        return OperatorError(_message(refusal))
    if refusal.code == HTTPStatus.NOT_FOUND:
        return NothingFound(_message(refusal))
    if refusal.code == HTTPStatus.CONFLICT:
        return NotDone(_message(refusal))
    kind = NotReady if refusal.code == HTTPStatus.SERVICE_UNAVAILABLE else CommandFailed
    return kind(f"the receiver answered {refusal.code}: {_message(refusal)}")


def _message(refusal: urllib.error.HTTPError) -> str:
    # The body may be that of a proxy.
    with suppress(ValueError, KeyError), refusal:
        problem = json.loads(refusal.read())
        return "; ".join(str(problem[key]) for key in ("detail", "hint") if key in problem)
    return "without a message"
