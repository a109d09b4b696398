"""Chat completion requests of the emulated gateway: their types, and the checks that respond with 400."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from trace_drain_testing.emulator.refusals import bad_request

MODEL = re.compile(r"[^/\s]+/\S+")
FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
DATA_URL = re.compile(r"data:(?P<media>image/[a-z0-9.+-]+);base64,(?P<data>.*)", re.DOTALL)
SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""First bytes of an image by media type; other types are refused."""
CHOICES = ("auto", "none", "required")
ACCEPTED = {
    re.compile(r"\.content\[\d*(\.\.\.)?\](\.type)?`$"): "; expected a part of type text or image_url",
    re.compile(r"\.role`$"): "; expected system, developer, user, assistant or tool",
    re.compile(r"response_format\.type`$"): "; expected text, json_object or json_schema",
    re.compile(r"\.type`$"): "; expected function",
}
"""Accepted values by the path at the end of an error of msgspec."""
QUOTED = re.compile(r" '[^']*'")


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageUrl(msgspec.Struct, frozen=True):
    """Address of an image: an https address, or a data URL in base64."""

    url: str
    detail: str | None = None


class Image(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class CalledFunction(msgspec.Struct, frozen=True):
    """Function of a tool call, with its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """Call of a tool, as the gateway returned it and as the client repeats it."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Text | Image] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if isinstance(part, Text))
        return self.content or ""

    @property
    def images(self) -> list[Image]:
        return (
            [part for part in self.content if isinstance(part, Image)]
            if isinstance(self.content, list)
            else []
        )


class Function(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OfferedTool(msgspec.Struct, frozen=True):
    type: Literal["function"]
    function: Function


class ChosenFunction(msgspec.Struct, frozen=True):
    """Name of the function that the model must call."""

    name: str


class ChosenTool(msgspec.Struct, frozen=True):
    """Tool that the model must call."""

    type: Literal["function"]
    function: ChosenFunction


class GatewayOptions(msgspec.Struct, frozen=True):
    """Options of the gateway itself."""

    order: list[str] | None = None


class ProviderOptions(msgspec.Struct, frozen=True):
    """Options by provider; only the options of the gateway are read."""

    gateway: GatewayOptions | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class NamedSchema(msgspec.Struct, frozen=True):
    name: str
    schema: dict[str, Any] = {}


class ResponseFormat(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class ChatRequest(msgspec.Struct, frozen=True, rename={"provider_options": "providerOptions"}):
    """Body of a chat completion request. Unknown fields are ignored."""

    model: str
    messages: list[Message]
    stream: bool | None = False
    tools: list[OfferedTool] | None = None
    tool_choice: str | ChosenTool | None = None
    provider_options: ProviderOptions | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: ResponseFormat | None = None

    @property
    def provider_order(self) -> list[str]:
        """Return the providers that the client prefers."""
        gateway = self.provider_options.gateway if self.provider_options else None
        return (gateway.order if gateway else None) or []

    @property
    def answer_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the answer's text; `None` if it is plain text."""
        form = self.response_format
        if form is None or form.type == "text":
            return None
        return form.json_schema.schema if form.json_schema else {"type": "object"}

    @property
    def tokens_max(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


def parse_request(body: bytes) -> ChatRequest:
    """Decode and check a request. Raises `Refusal`, which names the field and the expected value."""
    try:
        request = msgspec.json.decode(body, type=ChatRequest)
    except msgspec.DecodeError as error:
        # Without the quoted value, because an error never repeats its input.
        text = QUOTED.sub("", str(error))
        # Expected values that the message of msgspec does not name.
        accepted = next((names for path, names in ACCEPTED.items() if path.search(text)), "")
        raise bad_request(text + accepted) from error
    for problem in _problems(request):
        raise bad_request(problem)
    return request


def _problems(request: ChatRequest) -> Iterator[str]:
    if not MODEL.fullmatch(request.model):
        yield "`model` is malformed; expected <provider>/<model_name>"
    if not request.messages:
        yield "`messages` is empty; expected at least one message"
    form = request.response_format
    if form is not None and (form.type == "json_schema") != (form.json_schema is not None):
        yield "`response_format.json_schema` is required for the type json_schema, and only valid there"
    if request.tokens_max is not None and request.tokens_max < 1:
        yield "the limit of tokens is below 1"
    for index, message in enumerate(request.messages):
        for problem in _message_problems(message):
            yield f"`messages[{index}]`: {problem}"
    yield from _unanswered(request.messages)
    yield from _tool_problems(request.tools or [])
    yield from _choice_problems(request)


def _message_problems(message: Message) -> Iterator[str]:
    if message.content is None and not (message.role == "assistant" and message.tool_calls):
        yield "`content` is missing; only an assistant's message with tool calls may have none"
    if message.tool_calls and message.role != "assistant":
        yield "`tool_calls` is only valid in an assistant's message"
    if (message.role == "tool") != (message.tool_call_id is not None):
        yield "`tool_call_id` is required in a tool's message, and only valid there"
    if message.content == []:
        yield "`content` is an empty list; expected at least one part"
    for image in message.images:
        if problem := image_problem(image.image_url.url):
            yield f"`image_url`: {problem}"


def image_problem(url: str) -> str:
    """Return the reason why an image's address is refused; empty if it is accepted."""
    if not url.startswith("data:"):
        parts = urlsplit(url)
        is_valid = parts.scheme == "https" and bool(parts.hostname)
        return "" if is_valid else "the address is not https; expected https://… or data:<mime>;base64,<data>"
    match = DATA_URL.fullmatch(url)
    if not match or match["media"] not in SIGNATURES:
        return f"the data URL has no accepted type; expected base64 of {', '.join(SIGNATURES)}"
    try:
        content = base64.b64decode(match["data"], validate=True)
    except (binascii.Error, ValueError):
        return "the data URL is not valid base64"
    is_image = content.startswith(SIGNATURES[match["media"]])
    return "" if is_image else f"the data is no image of type {match['media']}"


def _unanswered(messages: list[Message]) -> Iterator[str]:
    """Check that the results of all tool calls, and no others, precede the next message of another role."""
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                yield f"`messages[{index}]`: no tool call with this `tool_call_id` waits for an answer"
            waiting.discard(str(message.tool_call_id))
            continue
        if waiting:
            yield f"`messages[{index}]`: a tool call before it has no answer; expected a tool's message"
        waiting = {call.id for call in message.tool_calls or []}
    if waiting:
        yield "the last tool calls have no answer; expected a tool's message for each"


def _tool_problems(tools: list[OfferedTool]) -> Iterator[str]:
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        yield "`tools` has two functions of the same name"
    for index, tool in enumerate(tools):
        if not FUNCTION_NAME.fullmatch(tool.function.name):
            yield f"`tools[{index}].function.name` is malformed; expected {FUNCTION_NAME.pattern}"
        if problem := _schema_problem(tool.function.parameters or {}):
            yield f"`tools[{index}].function.parameters`: {problem}"


def _schema_problem(schema: dict[str, Any]) -> str:
    if not schema:
        return ""
    if schema.get("type") != "object":
        return "`type` is not `object`"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(value, dict) for value in properties.values()):
        return "`properties` is not an object of schemas"
    if not isinstance(required, list) or not set(map(str, required)) <= properties.keys():
        return "`required` is not a list of names in `properties`"
    return ""


def _choice_problems(request: ChatRequest) -> Iterator[str]:
    choice, names = request.tool_choice, {tool.function.name for tool in request.tools or []}
    if isinstance(choice, ChosenTool):
        if choice.function.name not in names:
            yield "`tool_choice` names a function that is not in `tools`"
    elif choice is not None and choice not in CHOICES:
        yield f"`tool_choice` is unknown; expected {', '.join(CHOICES)} or a function"
    elif choice == "required" and not names:
        yield "`tool_choice` is `required`, and `tools` is empty"
