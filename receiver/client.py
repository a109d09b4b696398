"""Client of the API for Python programs, in one file without dependencies: it may be copied.

    client = Client("http://127.0.0.1:8318", token="…")
    for trace in client.rows("search", filter="service=web status=error", since="24h"):
        print(trace["trace_id"], trace["duration_ms"])

Invariant: an answer is whole, or iterating over it raises an `ApiError`.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, cast


class ApiError(Exception):
    """The API did not answer (`status` 0), or refused to. `problem` has the problem details."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__("; ".join(str(problem[key]) for key in ("detail", "hint") if key in problem))
        self.status = status
        self.problem = problem


class QuestionError(ApiError):
    """The filter or another parameter is wrong."""


class LimitError(ApiError):
    """The query needs too much memory or time; ask for less."""


class BusyError(ApiError):
    """Too many queries run, or the store does not answer; ask again later."""


class IncompleteError(ApiError):
    """The answer ended early; the receiver's log has the reason."""


_ERROR_OF = {400: QuestionError, 422: LimitError, 429: BusyError, 503: BusyError}


class Rows:
    """The rows of an answer, to be read once. Then `end` has their `count`, and `cut` if there is a limit."""

    def __init__(self, answer: HTTPResponse) -> None:
        self._answer = answer
        self.end: dict[str, Any] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        count = 0
        # Each failure leaves the answer without its last line, which the check below detects.
        with suppress(OSError, ValueError, HTTPException), self._answer:
            for row in map(json.loads, self._answer):
                # An answer that stops in the middle may end with a whole line; only this line proves the end.
                if row.keys() == {"end"}:
                    self.end = row["end"]
                    break
                yield row
                count += 1
        if self.end.get("count") != count:
            raise IncompleteError(0, {"detail": f"the answer ended after {count} rows"})


class Client:
    """Asks the questions that `/docs` of the API lists."""

    def __init__(self, url: str = "http://127.0.0.1:8318", token: str = "", timeout_s: float = 120.0) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s

    def rows(self, question: str, **parameters: str | int) -> Rows:
        """Ask a question whose answer has lines, such as `search` or `spans`."""
        return Rows(self.open(question, "application/x-ndjson", **parameters))

    def open(self, question: str, accept: str = "*/*", **parameters: str | int) -> HTTPResponse:
        """Ask a question, and return its answer as an open file."""
        url = f"{self._url}/api/v1/{question}?{urllib.parse.urlencode(parameters)}"
        request = urllib.request.Request(url, headers={"Accept": accept, **self._headers})  # noqa: S310
        try:
            # The timeout applies to each wait for bytes, not to the answer as a whole.
            return cast("HTTPResponse", urllib.request.urlopen(request, timeout=self._timeout_s))  # noqa: S310
        except urllib.error.HTTPError as refusal:
            problem = {"detail": f"the API answered {refusal.code}"}
            # A proxy in between may answer with text that is not JSON.
            with suppress(OSError, ValueError, HTTPException), refusal:
                problem = dict(json.loads(refusal.read()))
            raise _ERROR_OF.get(refusal.code, ApiError)(refusal.code, problem) from refusal
        except (OSError, HTTPException) as error:
            raise ApiError(0, {"detail": f"the API does not answer: {error}"}) from error
