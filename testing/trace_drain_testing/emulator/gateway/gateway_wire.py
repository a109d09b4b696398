"""JSON of the emulated gateway's answers, and the lines of a stream.

Shapes that the specification leaves open can be switched (`UNSTATED`), so that a client that depends on more
than the specification fails a test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trace_drain_testing.emulator.gateway.gateway_answers import AnsweredCall, ModelAnswer, TokenCounts

Json = dict[str, Any]

UNSTATED: Mapping[str, tuple[str, ...]] = {
    "P61": ("list", "array", "minimal"),
    "P65": ("common", "whole", "minimal", "verbose"),
    "P66": ("common", "minimal", "verbose"),
}
"""Shapes by rule; the first is the default.

`array`: the list of models without an object around it. `whole`: a tool call in a single delta. `minimal`:
only what the specification names. `verbose`: more fields, comments and events than common libraries send.
"""
DONE = b"data: [DONE]\n\n"
MALFORMED = b'data: {"choices": [{"delta": {"content": "\n\n'
ARGUMENT_CHARACTERS = 12
"""Length of a fragment of a tool call's arguments."""
_FRAGMENT = re.compile(r"\s*\S+|\s+")
_EXTRA: Json = {"service_tier": None, "system_fingerprint": "fp_emulated", "x_unknown": {"list": [1, None]}}


class Identity(NamedTuple):
    """Fields that all chunks of an answer share."""

    id: str
    created_s: int
    model: str
    attempts: tuple[tuple[str, bool], ...]
    """Providers in the order of the attempts, and whether each answered."""

    @property
    def routing(self) -> Json:
        """Return the provider that answered, and all attempts."""
        attempts = [{"provider": provider, "success": answered} for provider, answered in self.attempts]
        final = {"originalModelId": self.model, "finalProvider": self.attempts[-1][0], "attempts": attempts}
        return {"gateway": {"routing": final}}


def models_body(models: Mapping[str, tuple[str, ...]], created_s: int, shape: str) -> Json | list[Json]:
    """Return the list of models. `models`: providers by model."""
    if shape == "minimal":
        return {"data": [{"id": model} for model in models]}
    rows = [
        {"id": model, "object": "model", "created": created_s, "owned_by": model.partition("/")[0]}
        for model in models
    ]
    return rows if shape == "array" else {"object": "list", "data": rows}


def completion_body(identity: Identity, answer: ModelAnswer, shape: str) -> Json:
    calls = [{"id": _call_id(identity, index), **_called(call)} for index, call in enumerate(answer.calls)]
    message: Json = {"content": answer.text or None}
    if calls:
        message["tool_calls"] = calls
    if shape == "minimal":
        return {"choices": [{"message": message}]}
    message = {"role": "assistant", **message, "provider_metadata": identity.routing}
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": None}
    return {
        "id": identity.id,
        "object": "chat.completion",
        "created": identity.created_s,
        "model": identity.model,
        "choices": [choice],
        "usage": _usage(answer.usage),
        **(_EXTRA if shape == "verbose" else {}),
    }


def stream_chunks(identity: Identity, answer: ModelAnswer, shape: str, *, has_usage: bool) -> Iterator[Json]:
    if shape == "minimal":
        yield from ({"choices": [{"delta": delta}]} for delta in _whole_deltas(identity, answer))
        return
    whole = {"usage": None} if has_usage else {}
    common: Json = {
        "id": identity.id,
        "object": "chat.completion.chunk",
        "created": identity.created_s,
        "model": identity.model,
        **(_EXTRA if shape == "verbose" else {}),
        **whole,
    }
    for delta in _deltas(identity, answer, shape):
        yield {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last_delta = {"provider_metadata": identity.routing}
    yield {**common, "choices": [{"index": 0, "delta": last_delta, "finish_reason": answer.finish_reason}]}
    if has_usage:
        yield {**common, "choices": [], "usage": _usage(answer.usage)}


def stream_line(chunk: Json, shape: str) -> bytes:
    """Return the lines of a chunk, with comments and the name of its event in some shapes."""
    line = f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n"
    if shape == "verbose":
        line = f": comment\nevent: chunk\nid: 1\n{line}".replace("\n", "\r\n")
    return line.encode()


def _deltas(identity: Identity, answer: ModelAnswer, shape: str) -> Iterator[Json]:
    yield {"role": "assistant", "content": ""}
    if shape == "whole":
        yield from _whole_deltas(identity, answer)
        return
    yield from ({"content": piece} for piece in _FRAGMENT.findall(answer.text))
    for index, call in enumerate(answer.calls):
        begun = {"id": _call_id(identity, index), **_called(AnsweredCall(call.name, ""))}
        yield {"tool_calls": [{"index": index, **begun}]}
        for start in range(0, len(call.arguments), ARGUMENT_CHARACTERS):
            piece = call.arguments[start : start + ARGUMENT_CHARACTERS]
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _whole_deltas(identity: Identity, answer: ModelAnswer) -> Iterator[Json]:
    yield from ({"content": piece} for piece in _FRAGMENT.findall(answer.text))
    for index, call in enumerate(answer.calls):
        yield {"tool_calls": [{"index": index, "id": _call_id(identity, index), **_called(call)}]}


def _called(call: AnsweredCall) -> Json:
    return {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _call_id(identity: Identity, index: int) -> str:
    return f"call_{identity.id.partition('-')[2]}_{index}"


def _usage(usage: TokenCounts) -> Json:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }
