"""`trace-drain platform models` and `trace-drain platform chat`: the gateway to language models."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from receiver.cli.platform.platform_options import Options, gateway, gateway_options
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import FILE_PATH
from receiver.cli.shell.table import lines_of, wide_option
from receiver.cli.shell.unsafe_text import without_controls
from receiver.errors import OperatorError
from receiver.platform.client.chat import (
    Assembly,
    ChatRequest,
    Completion,
    ImagePart,
    Message,
    TextPart,
    Tool,
    ToolCall,
    image_part,
    parse_tools,
)
from receiver.platform.client.errors import NotJson
from receiver.platform.client.gateway import Gateway, Model
from receiver.platform.client.json_text import parse
from receiver.printable import harmless_text
from receiver.settings import MIB
from receiver.sizes import counted, size_text

IMAGE_BYTES_MAX = 20 * MIB
TOOLS_BYTES_MAX = 1 * MIB
_IMAGES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""Type of an image by its first bytes."""


@click.command(
    epilog=examples("trace-drain platform models", "trace-drain platform models --format jsonl | jq -r .id")
)
@gateway_options
@click.option("--format", "form", type=click.Choice(["table", "jsonl"]), default="table")
@wide_option
def models(*, form: str, **options: Any) -> None:  # noqa: ANN401 - click's values
    """List the language models of the gateway."""
    listed = asyncio.run(_models(gateway(options)))
    if form == "jsonl":
        lines: Iterable[str] = (json.dumps(model.raw, separators=(",", ":")) for model in listed)
    else:
        lines = lines_of(("model", "owner"), [(model.id, model.owned_by) for model in listed])
    for line in lines:
        click.echo(line)


async def _models(client: Gateway) -> list[Model]:
    async with client:
        return await client.models()


@click.command(
    epilog=examples(
        "trace-drain platform chat 'What is a span?' --model openai/gpt-4.1",
        "trace-drain platform chat 'What does this show?' --model openai/gpt-4.1 --image waterfall.png",
        "trace-drain platform chat 'Weather in Paris?' --model a/b --tools tools.json --tool-choice auto",
    )
)
@click.argument("prompt")
@click.option("--model", required=True, metavar="PROVIDER/MODEL", help="As `platform models` lists.")
@click.option("--system", metavar="TEXT", help="Instructions before the prompt.")
@click.option(
    "--image",
    "images",
    type=FILE_PATH,
    multiple=True,
    metavar="FILE",
    help="PNG, JPEG, GIF or WebP; repeatable.",
)
@click.option(
    "--stream/--no-stream", "is_streamed", default=True, help="Print the answer as it arrives. [--stream]"
)
@click.option("--tools", "tools_file", type=FILE_PATH, metavar="FILE", help="JSON array of tools.")
@click.option("--tool-choice", default="", metavar="CHOICE", help="How the model chooses tools: auto.")
@click.option("--provider-order", default="", metavar="A,B", help="Providers to try, in this order.")
@gateway_options
def chat(prompt: str, *, is_streamed: bool, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Send PROMPT to a language model, and print its answer.

    A tool that the model calls is printed as a line of JSON, and is not run. The usage is printed on standard
    error. An incomplete answer is an error, with exit code 1.
    """
    request, client = _request(prompt, options), gateway(options)
    completion = asyncio.run((_streamed if is_streamed else _whole)(client, request))
    for call in completion.tool_calls:
        click.echo(_call_line(call))
    click.echo(harmless_text(_summary(completion)), err=True)


async def _whole(client: Gateway, request: ChatRequest) -> Completion:
    async with client:
        completion = await client.chat(request)
    _print_text(completion.text)
    _end_line(completion.text)
    return completion


async def _streamed(client: Gateway, request: ChatRequest) -> Completion:
    """Print the text as it arrives. Raises after the printed part if the stream is cut."""
    assembly, last = Assembly(), ""
    try:
        async with client:
            async for fragment in client.stream(request):
                assembly.add(fragment)
                _print_text(fragment.text)
                last = fragment.text or last
    finally:
        _end_line(last)
    return assembly.completion()


def _print_text(text: str) -> None:
    click.echo(without_controls(text), nl=False)


def _end_line(text: str) -> None:
    if text and not text.endswith("\n"):
        click.echo()


def _call_line(call: ToolCall) -> str:
    fields = {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
    return json.dumps({"tool_call": fields}, separators=(",", ":"))


def _summary(completion: Completion) -> str:
    usage = completion.usage
    parts = [completion.model, completion.finish_reason and f"finish reason {completion.finish_reason}"]
    if usage and usage.total_tokens is not None:
        parts.append(counted(usage.total_tokens, "token"))
    return ", ".join(part for part in parts if part) or "the gateway reported no usage"


def _request(prompt: str, options: Options) -> ChatRequest:
    images = [_image(Path(name)) for name in options["images"]]
    content: str | tuple[TextPart | ImagePart, ...] = (TextPart(text=prompt), *images) if images else prompt
    system = [Message(role="system", content=options["system"])] if options["system"] else []
    order = (name.strip() for name in options["provider_order"].split(","))
    return ChatRequest(
        model=options["model"],
        messages=(*system, Message(role="user", content=content)),
        tools=_tools(options["tools_file"]),
        tool_choice=options["tool_choice"],
        provider_order=tuple(name for name in order if name),
    )


def _image(path: Path) -> ImagePart:
    content = _content(path, IMAGE_BYTES_MAX, "--image")
    mime = next((mime for begin, mime in _IMAGES.items() if content.startswith(begin)), None)
    if mime is None:
        raise OperatorError(f"--image '{path}' is no image; expected PNG, JPEG, GIF or WebP")
    return image_part(mime, base64.b64encode(content).decode())


def _tools(name: str | None) -> tuple[Tool, ...]:
    if name is None:
        return ()
    try:
        return parse_tools(parse(_content(Path(name), TOOLS_BYTES_MAX, "--tools"), "the file of --tools"))
    except NotJson as error:
        raise OperatorError(str(error)) from error


def _content(path: Path, bytes_max: int, option: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise OperatorError(f"{option} '{path}' cannot be read: {error.strerror}") from error
    if len(content) > bytes_max:
        raise OperatorError(f"{option} '{path}' is larger than {size_text(bytes_max)}")
    return content
