"""How a command asks the store: through the receiver that runs on the data directory, else directly.

The embedded engine has one owner, so a running receiver is always asked first.
"""

from __future__ import annotations

import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

from receiver.cli.options import data_dir_of, serving
from receiver.cli.readiness import note_when_slow, require_store_process
from receiver.cli.table import counted
from receiver.config.checks import require_engine
from receiver.engine.opening import claimed, open_store
from receiver.engine.store import Store
from receiver.errors import CommandFailed, OperatorError, StoreTrouble
from receiver.settings import Settings
from receiver.supervisor.data_dir import STATE_NAME, State, read_state

TIMEOUT_S = 90
MEMORY_BYTES_MAX = 1 << 20
"""Of an answer from the store itself; the rest waits in a temporary file."""
JSON_LINES = "application/x-ndjson"
TOKEN_FROM = "--config FILE of the receiver, or TRACE_DRAIN_API_TOKEN_FILE in the environment"  # noqa: S105 - a place
NO_TABLES = {60, 81}
"""ClickHouse's UNKNOWN_TABLE and UNKNOWN_DATABASE."""


class NothingFound(CommandFailed):
    """The receiver has nothing of that name, or not yet."""


class AnswerCut(CommandFailed):
    """The answer broke off: what came is not all there is."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"the receiver's answer broke off after {counted(count, 'line')}; expected a last line with "
            "their count; the receiver's log says why"
        )


class NotDone(CommandFailed):
    """The receiver has a reason not to do that now."""


def running_on(settings: Settings) -> State | None:
    """The receiver that runs on this data directory. A file left by one that died does not count."""
    directory = Path(settings.data_dir)
    if not (directory / STATE_NAME).exists():
        return None
    state = read_state(directory)
    return state if Path(f"/proc/{state.pids.supervisor}").exists() else None


@contextmanager
def store_of(settings: Settings) -> Iterator[Store]:
    """The store itself, while no receiver runs. The embedded one must exist already."""
    embedded = settings.store.url == "embedded"
    require_engine(settings)
    data_dir = data_dir_of(settings) if embedded else Path(settings.data_dir)
    if embedded and not (data_dir / "store").is_dir():
        raise CommandFailed(f"no embedded store in '{data_dir}'; expected one made by `{serving(settings)}`")
    with claimed(data_dir) if embedded else nullcontext():
        store = open_store(settings, disk_free_min=lambda: settings.journal.disk_free_min)
        try:
            yield store
        except StoreTrouble as trouble:
            if trouble.code in NO_TABLES:
                raise CommandFailed(
                    "the store has no tables; expected `trace-drain schema apply`"
                ) from trouble
            if trouble.advice:
                raise CommandFailed(f"the store: {trouble.label}") from trouble
            if not embedded and trouble.code is None:
                raise CommandFailed(
                    f"the store: {trouble.label}; expected ClickHouse's HTTP interface there (store.url)"
                ) from trouble
            raise CommandFailed(f"the store: {trouble}") from trouble
        finally:
            store.close()


def answered(
    settings: Settings, state: State, path: str, query: Mapping[str, str], *, method: str = "GET"
) -> Iterator[dict[str, Any]]:
    """Ask the running receiver; yield one object for each line of its answer."""
    require_store_process(state)
    rows = answered_at(state.urls["api"], settings.api_token, path, query, method=method)
    with note_when_slow(state):
        first = next(rows, None)
    if first is not None:
        yield first
        yield from rows


def answered_at(  # noqa: PLR0913 - what a request is made of
    url: str,
    token: str,
    path: str,
    query: Mapping[str, str],
    *,
    method: str = "GET",
    token_from: str = TOKEN_FROM,
) -> Iterator[dict[str, Any]]:
    """Ask the API at this URL; an empty token is none. `token_from`: how an operator says it."""
    text = urllib.parse.urlencode(query)
    url = f"{url.rstrip('/')}{path}{'?' if text else ''}{text}"
    request = urllib.request.Request(url, method=method)  # noqa: S310 - our own receiver
    if method == "POST":
        request.data = b"{}"
        request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - as above
            in_lines = answer.headers.get_content_type() == JSON_LINES
            yield from _whole(answer) if in_lines else [json.loads(answer.read())]
    except urllib.error.HTTPError as refusal:
        raise _verdict(refusal, token, token_from) from refusal
    except (OSError, ValueError, HTTPException) as reason:
        raise CommandFailed(
            f"the receiver at {url} broke off or does not answer; expected a whole answer, "
            f"its first byte within {TIMEOUT_S} s"
        ) from reason


def _whole(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield one object for each line. Raises `AnswerCut` unless the last line confirms their number.

    The standard library takes a chunked body that breaks off for one that ends.
    """
    count = 0
    try:
        for line in lines:
            found = json.loads(line)
            if found.keys() == {"end"}:
                if found["end"]["count"] != count:
                    break
                return
            yield found
            count += 1
    except (OSError, ValueError, HTTPException) as reason:
        raise AnswerCut(count) from reason
    raise AnswerCut(count)


def rows_in(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Yield one object for each line of an answer that comes from the store itself.

    The answer is read to its end first: the store's time limit must not count the reader's pace.
    """
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES_MAX) as answer:
        answer.writelines(pieces)
        answer.seek(0)
        for line in answer:
            yield json.loads(line)


def _verdict(refusal: urllib.error.HTTPError, token: str, token_from: str) -> OperatorError:
    if refusal.code == HTTPStatus.UNAUTHORIZED:
        found = "does not know this token" if token else "asks for a token"
        return OperatorError(f"the receiver's API {found}; expected {token_from}")
    if refusal.code == HTTPStatus.BAD_REQUEST:
        return OperatorError(_message(refusal))
    if refusal.code == HTTPStatus.NOT_FOUND:
        return NothingFound(_message(refusal))
    if refusal.code == HTTPStatus.CONFLICT:
        return NotDone(_message(refusal))
    return CommandFailed(f"the receiver answered {refusal.code}: {_message(refusal)}")


def _message(refusal: urllib.error.HTTPError) -> str:
    with suppress(ValueError, KeyError), refusal:
        return str(json.loads(refusal.read())["error"])
    return "no reason given"
