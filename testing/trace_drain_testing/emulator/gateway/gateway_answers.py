"""Answers of the emulated gateway's models: scripted by a test, or derived from the request.

The same request always gets the same derived answer: its text quotes the request, and it calls an offered
tool once with arguments that fit its JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from trace_drain_testing.emulator.gateway.gateway_request import ChatRequest, ChosenTool, Message, OfferedTool

CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS = 85
MESSAGE_TOKENS = 4
QUOTED_CHARACTERS = 200
"""Maximum length of a quotation from a message in a derived answer."""
REFERENCE = "[span:"
"""Start of a reference to a span, in instructions that request such references and in the answer."""
SPANS_NAMED = 3
"""Number of spans that a derived answer names."""
DEPTH_MAX = 8
"""Maximum nesting of schemas for which arguments are derived."""


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | str = {}
    """Arguments as an object, or as exact text, which may be invalid JSON."""


class ScriptedAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer to the next request, which need not fit it."""

    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str = ""
    """Reason for the end of the answer; empty means the reason that fits."""


class SpanRow(msgspec.Struct, frozen=True):
    """Fields of a line of a trace's summary that a derived answer quotes."""

    span_id: str
    service: str
    name: str
    duration_ms: float
    part: str = ""


class AnsweredCall(NamedTuple):
    name: str
    arguments: str


class TokenCounts(NamedTuple):
    prompt: int
    completion: int


class ModelAnswer(NamedTuple):
    """Complete answer, before it is encoded as one object or as a stream."""

    text: str
    calls: tuple[AnsweredCall, ...]
    finish_reason: str
    usage: TokenCounts


def scripted_answer(script: ScriptedAnswer, request: ChatRequest) -> ModelAnswer:
    calls = tuple(
        AnsweredCall(
            call.name, call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        )
        for call in script.tool_calls
    )
    return _answer(request, script.text, calls, script.finish_reason)


def derived_answer(request: ChatRequest) -> ModelAnswer:
    """Return an answer that depends on the request only."""
    question = next((message.text for message in reversed(request.messages) if message.role == "user"), "")
    if tool := _tool_to_call(request):
        arguments = _value(tool.function.parameters, question, DEPTH_MAX) if tool.function.parameters else {}
        return _answer(request, "", (AnsweredCall(tool.function.name, json.dumps(arguments)),))
    if (schema := request.answer_schema) is not None:
        return _answer(request, json.dumps(_value(schema, question, DEPTH_MAX)))
    if sentences := _named_spans(request.messages):
        return _answer(request, " ".join(sentences))
    parts = [f"You wrote: {question[:QUOTED_CHARACTERS]}"]
    if images := sum(len(message.images) for message in request.messages):
        parts.append(f"Images: {images}.")
    parts += [f"A tool answered: {result[:QUOTED_CHARACTERS]}" for result in _tool_results(request.messages)]
    return _answer(request, "\n".join(parts))


def _answer(
    request: ChatRequest, text: str, calls: tuple[AnsweredCall, ...] = (), finish_reason: str = ""
) -> ModelAnswer:
    tokens_max = request.tokens_max
    if tokens_max is not None and not calls and tokens(text) > tokens_max:
        text, finish_reason = text[: tokens_max * CHARACTERS_PER_TOKEN], finish_reason or "length"
    completion = tokens(text) + sum(tokens(call.name + call.arguments) for call in calls)
    usage = TokenCounts(prompt_tokens(request), completion)
    return ModelAnswer(text, calls, finish_reason or ("tool_calls" if calls else "stop"), usage)


def tokens(text: str) -> int:
    """Return the number of tokens of a text: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def prompt_tokens(request: ChatRequest) -> int:
    """Return the number of tokens of a request."""
    offered = tokens(msgspec.json.encode(request.tools).decode()) if request.tools else 0
    return offered + sum(map(_message_tokens, request.messages))


def _message_tokens(message: Message) -> int:
    called = sum(tokens(call.function.name + call.function.arguments) for call in message.tool_calls or [])
    return MESSAGE_TOKENS + tokens(message.text) + IMAGE_TOKENS * len(message.images) + called


def _tool_to_call(request: ChatRequest) -> OfferedTool | None:
    """Return the tool to call: the chosen tool, or the first tool unless the last message is its result."""
    tools, choice = request.tools or [], request.tool_choice
    if not tools or choice == "none":
        return None
    if isinstance(choice, ChosenTool):
        return next(tool for tool in tools if tool.function.name == choice.function.name)
    has_answer = request.messages[-1].role == "tool"
    return None if has_answer and choice != "required" else tools[0]


def _tool_results(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


def _named_spans(messages: Sequence[Message]) -> list[str]:
    """Return sentences about the first spans in the data, if the instructions request references to spans."""
    if not any(REFERENCE in message.text for message in messages if message.role == "system"):
        return []
    lines = (line for message in messages if message.role != "system" for line in message.text.splitlines())
    # The same span may be in the message and in the result of a tool.
    sentences = dict.fromkeys(filter(None, map(_span_sentence, lines)))
    return list(sentences)[:SPANS_NAMED]


def _span_sentence(line: str) -> str:
    try:
        row = msgspec.json.decode(line, type=SpanRow)
    except msgspec.DecodeError:
        return ""
    how = "failed after" if row.part == "error" else "took"
    return f"{row.name} of {row.service} {how} {row.duration_ms:.0f} ms {REFERENCE}{row.span_id}]."


def _value(schema: dict[str, Any], question: str, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    """Return the first value that a JSON Schema allows; a string without `enum` quotes the question."""
    if allowed := schema.get("enum"):
        return allowed[0]
    properties = schema.get("properties", {})
    match schema.get("type", "object" if properties else "string"):
        case "object":
            names = schema.get("required", []) if depth else []
            return {name: _value(properties.get(name, {}), question, depth - 1) for name in names}
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "string":
            return question[:QUOTED_CHARACTERS]
        case other:
            return {"array": [], "boolean": True}.get(str(other))
