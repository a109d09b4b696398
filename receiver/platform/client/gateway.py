"""Client of the gateway to language models: its models, and chat completions, whole or streamed.

Invariant: an answer is whole, or an error is raised. A chat request is never repeated: each costs money.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from receiver.platform.client.answers import GATEWAY, error_in
from receiver.platform.client.chat import ChatRequest, Completion, Fragment, parse_completion, parse_fragment
from receiver.platform.client.errors import AddressMissing, AnswerCut
from receiver.platform.client.http_calls import HttpCaller, Request
from receiver.platform.client.json_text import as_object, converted, parse, parse_object
from receiver.platform.client.stream_items import DONE, LineReader

EVENT_STREAM = "text/event-stream"
_CHAT = ("v1", "chat", "completions")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """PROVIDER/MODEL."""
    owned_by: str = ""
    created: float | None = None
    raw: dict[str, Any] = {}


class Gateway(HttpCaller):
    def __init__(self, url: str, api_key: str, timeout_s: float = 30.0) -> None:
        """Raise `AddressMissing` without a usable address and key."""
        if not api_key:
            raise AddressMissing(f"no API key of the gateway; set {GATEWAY.secret_from}")
        super().__init__(GATEWAY, url, api_key, timeout_s=timeout_s)

    async def models(self) -> list[Model]:
        """Return the models. The answer is a list, or an object with the list in `data` or `models`."""
        what = "the list of models"
        answer = parse(await self.call(Request("GET", ("v1", "models"))), what)
        if isinstance(answer, dict):
            answer = answer.get("data", answer.get("models"))
        entries = converted({"entries": answer}, _Models, what).entries
        return [_model(entry, what) for entry in entries]

    async def chat(self, request: ChatRequest) -> Completion:
        call = Request("POST", _CHAT, body=request.body(is_streamed=False))
        answer = parse_object(await self.call(call), "the answer")
        self._raise_error_in(answer)
        return parse_completion(answer)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Fragment, None]:
        """Yield the fragments of the answer. Raises `AnswerCut` unless the stream has its last line."""
        call = Request("POST", _CHAT, body=request.body(is_streamed=True), accept=EVENT_STREAM)
        reader = LineReader(only_event_stream=True)
        async with self.opened(call) as pieces:
            async for piece in pieces:
                for text in reader.feed(piece):
                    if text == DONE:
                        return
                    chunk = as_object(parse(text, "a line of the stream"), "a line of the stream")
                    self._raise_error_in(chunk)
                    yield parse_fragment(chunk)
        if reader.end() == [DONE]:
            return
        raise AnswerCut("the stream of the gateway ended without its last line, [DONE]; the answer is cut")

    def _raise_error_in(self, content: dict[str, Any]) -> None:
        """Raise the error of a response with status 200: a stream has that status before it fails."""
        if error := error_in(content, GATEWAY, [self._secret]):
            raise error


class _Models(msgspec.Struct):
    entries: list[dict[str, Any] | str]


def _model(entry: dict[str, Any] | str, what: str) -> Model:
    fields = {"id": entry} if isinstance(entry, str) else entry
    return converted({**fields, "raw": fields}, Model, what)
