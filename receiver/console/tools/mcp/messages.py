"""Messages of JSON-RPC 2.0, as the Model Context Protocol uses them.

Invariant: errors never repeat input, except for the id of the request, which JSON-RPC demands.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from receiver.errors import ReceiverError

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
ID_CHARACTERS_MAX: Final = 256
"""Maximum length of the id of a request, which its response repeats."""

Json = dict[str, Any]


class RpcError(ReceiverError):
    """A message that is answered with an error of JSON-RPC."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


class Call(NamedTuple):
    """A request, or a notification."""

    method: str
    params: Json
    id: str | int | None
    """`None`: a notification, which has no response."""


def parsed(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON document of a body."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RpcError("the body is not JSON; expected a JSON-RPC message", PARSE_ERROR) from error


def call_of(message: Any) -> Call | None:  # noqa: ANN401 - any JSON
    """Return the request or the notification; `None` for a response, which this server never waits for."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RpcError("expected a message of JSON-RPC 2.0", INVALID_REQUEST)
    if "method" not in message and ("result" in message or "error" in message):
        return None
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise RpcError("method: expected a text", INVALID_REQUEST)
    if "id" in message and not is_id(message["id"]):
        raise RpcError("id: expected a whole number or a short text", INVALID_REQUEST)
    if not isinstance(params, dict):
        raise RpcError("params: expected an object", INVALID_PARAMS)
    return Call(method, params, message.get("id"))


def is_id(value: object) -> bool:
    """Return whether a value may be the id of a request."""
    if isinstance(value, str):
        return len(value) <= ID_CHARACTERS_MAX
    return isinstance(value, int) and not isinstance(value, bool)


def success(call: Call, result: Json) -> Json:
    """Return the response with a result."""
    return {"jsonrpc": "2.0", "id": call.id, "result": result}


def failure(message: Any, error: RpcError) -> Json:  # noqa: ANN401 - any JSON
    """Return the response with an error; its id is `null` if the message has no valid id."""
    id_ = message.get("id") if isinstance(message, dict) else None
    shown = id_ if is_id(id_) else None
    return {"jsonrpc": "2.0", "id": shown, "error": {"code": error.code, "message": str(error)}}
