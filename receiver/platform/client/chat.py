"""Chat completions: requests, whole answers, and the fragments of streamed ones.

`raw` keeps the answer as the gateway sent it. Texts of a model are data: nothing here runs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from receiver.platform.client.errors import AnswerCut, InvalidCall, WrongShape
from receiver.platform.client.json_text import as_object, converted, tolerant

_MODEL: Final = re.compile(r"[^\s/]+/\S+")
_IMAGE: Final = re.compile(r"https://\S+|data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/]+=*")
TOOL_CALLS_MAX = 128
"""Tool calls in one answer. More of them are an error of the model."""


class Omitting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a request, written without the fields that have their default."""


class TextPart(Omitting, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageUrl(Omitting, frozen=True):
    url: str
    """`https://…`, or `data:MIME;base64,…`."""
    detail: str = ""


class ImagePart(Omitting, frozen=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: str = ""
    """JSON, as the model wrote it: not checked."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str = "function"
    function: CalledFunction


class Message(Omitting, frozen=True):
    role: str
    content: str | tuple[TextPart | ImagePart, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls in an earlier message of the model."""
    tool_call_id: str = ""
    """Call to which a message of role `tool` has the result."""


class Function(Omitting, frozen=True):
    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {}
    """JSON Schema."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"] = "function"
    function: Function


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    """PROVIDER/MODEL."""
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: str = ""
    provider_order: tuple[str, ...] = ()
    """Providers that the gateway tries, in this order."""
    extra: Mapping[str, Any] = {}
    """Further fields, which a gateway may know: `max_tokens`, `temperature`."""

    def body(self, *, is_streamed: bool) -> bytes:
        """Return the JSON of the request. Raises `InvalidCall`."""
        self._check()
        fields: dict[str, Any] = {
            **self.extra,
            "model": self.model,
            "messages": self.messages,
            "stream": is_streamed,
            "tools": self.tools,
            "tool_choice": self.tool_choice,
        }
        if self.provider_order:
            fields["providerOptions"] = {"gateway": {"order": self.provider_order}}
        return msgspec.json.encode({name: value for name, value in fields.items() if value not in ((), "")})

    def _check(self) -> None:
        if not _MODEL.fullmatch(self.model):
            raise InvalidCall("the model is not valid; expected PROVIDER/MODEL, as `platform models` lists")
        if not self.messages:
            raise InvalidCall("the request has no message; expected at least one")
        contents = [message.content for message in self.messages if isinstance(message.content, tuple)]
        for part in (part for parts in contents for part in parts):
            if isinstance(part, ImagePart) and not _IMAGE.fullmatch(part.image_url.url):
                raise InvalidCall("an image is not valid; expected https://… or data:MIME;base64,…")


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a request. `None` if the gateway did not report the number."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    raw: dict[str, Any] = {}


class ToolCallFragment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a tool call. Parts with the same index belong together."""

    index: int = 0
    id: str = ""
    name: str = ""
    arguments: str = ""


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    tool_calls: tuple[ToolCallFragment, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    raw: dict[str, Any] = {}


def parse_completion(answer: object) -> Completion:
    """Return the completion of an answer. Raises `WrongShape`."""
    what = "the answer"
    content = as_object(answer, what)
    choice = _first_choice(content, what)
    if choice is None:
        raise WrongShape(f"{what} has no choices[0]")
    message = as_object(choice.get("message"), f"choices[0].message of {what}")
    calls = [as_object(call, "a tool call") for call in _list(message.get("tool_calls"), "tool_calls")]
    # Some gateways leave out the id, which a client must repeat with the result.
    named = [{"id": f"call_{index}", **call} for index, call in enumerate(calls)]
    return Completion(
        text=_text(message.get("content")),
        tool_calls=tuple(converted(call, ToolCall, "a tool call") for call in named),
        finish_reason=_reason(choice),
        usage=_usage(content),
        model=_text(content.get("model")),
        raw=content,
    )


def parse_fragment(chunk: object) -> Fragment:
    """Return the fragment of a chunk. Raises `WrongShape`."""
    what = "a chunk of the stream"
    content = as_object(chunk, what)
    # The last chunk may have the usage and no choice.
    choice = _first_choice(content, what) or {}
    delta = as_object(choice.get("delta") or {}, f"choices[0].delta of {what}")
    calls = _list(delta.get("tool_calls"), "tool_calls")
    return Fragment(
        text=_text(delta.get("content")),
        tool_calls=tuple(_call_fragment(call, index) for index, call in enumerate(calls)),
        finish_reason=_reason(choice),
        usage=_usage(content),
        model=_text(content.get("model")),
        raw=content,
    )


class Assembly:
    """Builds the completion from the fragments of a stream."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: dict[int, ToolCallFragment] = {}
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._model = ""

    def add(self, fragment: Fragment) -> None:
        """Add a fragment. Raises `WrongShape` for more than `TOOL_CALLS_MAX` tool calls."""
        self._texts.append(fragment.text)
        for part in fragment.tool_calls:
            known = self._calls.get(part.index, ToolCallFragment(index=part.index))
            self._calls[part.index] = ToolCallFragment(
                index=part.index,
                # Gateways send both once, and some repeat them in each part.
                id=known.id or part.id,
                name=known.name or part.name,
                arguments=known.arguments + part.arguments,
            )
        if len(self._calls) > TOOL_CALLS_MAX:
            raise WrongShape(f"the answer has more than {TOOL_CALLS_MAX} tool calls")
        self._finish_reason = fragment.finish_reason or self._finish_reason
        self._usage = fragment.usage or self._usage
        self._model = fragment.model or self._model

    def completion(self) -> Completion:
        """Return the completion. Raises `AnswerCut` for a tool call without a name."""
        calls = [call for _, call in sorted(self._calls.items())]
        if not all(call.name for call in calls):
            raise AnswerCut("the answer has a tool call without the name of its function")
        return Completion(
            text="".join(self._texts),
            tool_calls=tuple(
                ToolCall(
                    id=call.id or f"call_{index}",
                    function=CalledFunction(name=call.name, arguments=call.arguments),
                )
                for index, call in enumerate(calls)
            ),
            finish_reason=self._finish_reason,
            usage=self._usage,
            model=self._model,
        )


def parse_tools(content: object) -> tuple[Tool, ...]:
    """Return the tools of a JSON array. Raises `InvalidCall`."""
    try:
        return msgspec.convert(content, tuple[Tool, ...])
    except msgspec.ValidationError as error:
        raise InvalidCall(
            f"the tools are not valid: {error}; expected an array of "
            '{"type": "function", "function": {"name", "description", "parameters"}}'
        ) from None


def image_part(mime: str, encoded: str) -> ImagePart:
    """Return an image whose content is part of the request. `encoded`: base64."""
    return ImagePart(image_url=ImageUrl(url=f"data:{mime};base64,{encoded}"))


def _call_fragment(call: object, index: int) -> ToolCallFragment:
    content = as_object(call, "a tool call of the stream")
    function = tolerant(content.get("function"), ToolCallFragment)
    own = tolerant({"index": index, **content}, ToolCallFragment)
    return msgspec.structs.replace(own, name=function.name, arguments=function.arguments)


def _first_choice(content: dict[str, Any], what: str) -> dict[str, Any] | None:
    choices = _list(content.get("choices"), "choices")
    return as_object(choices[0], f"choices[0] of {what}") if choices else None


def _list(value: object, name: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise WrongShape(f"{name} of the answer is not an array")
    return value


def _text(value: object) -> str:
    """Return a text, or the texts of an array of parts; empty for everything else."""
    if isinstance(value, str):
        return value
    parts: Iterable[Any] = value if isinstance(value, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _reason(choice: dict[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) else None


def _usage(content: dict[str, Any]) -> Usage | None:
    usage = content.get("usage")
    return tolerant(usage, Usage) if isinstance(usage, dict) else None
