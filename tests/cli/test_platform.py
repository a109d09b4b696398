"""Commands of the platform: options, settings, output, and exit codes of incomplete answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from receiver.cli import EXIT_INTERRUPTED
from tests.support import commands
from tests.support.cases import each_case
from tests.support.platform_corpus import ESCAPES
from tests.support.platform_server import Answer, PlatformServer, platform_server

TOKEN = "tok_Secret0123456789"
KEY = "key_Secret0123456789"
MODEL = "openai/gpt-4.1"
CREATED_MS = 1_800_000_000_123
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
HOUR_MS = 3_600_000
PNG = b"\x89PNG\r\n\x1a\n0000"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory of the commands, with the files of the secrets."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "key").write_text(f"{KEY}\n")
    return tmp_path


async def run(*arguments: str, **environ: str) -> Result:
    # In a thread, because a command has its own event loop.
    return await asyncio.to_thread(commands.run, "platform", *arguments, **environ)


async def run_platform(server: PlatformServer, *arguments: str) -> Result:
    return await run(*arguments, "--base-url", server.url, "--token-file", "token", "--team", "team_1")


async def run_gateway(server: PlatformServer, *arguments: str) -> Result:
    return await run(*arguments, "--gateway-url", server.url, "--api-key-file", "key")


def event(number: int, text: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    payload = {"id": f"evt_{number}", "text": text}
    return {"type": "stdout", "created": CREATED_MS + number, "payload": payload, **fields}


def line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def chunk(delta: dict[str, Any]) -> bytes:
    return b"data: " + line({"model": MODEL, "choices": [{"delta": delta}]}) + b"\n"


DONE = b"data: [DONE]\n\n"


async def test_events_are_printed_as_lines() -> None:
    request = {"proxy": {"method": "GET", "host": "shop.example", "path": "/a", "statusCode": 502}}
    state = {"info": {"readyState": "READY", "step": "deploy"}}
    answer = [
        event(0, "first\nsecond\n"),
        {"type": "request", "created": CREATED_MS, "payload": request},
        {"type": "deployment-state", "created": CREATED_MS, "payload": state},
    ]
    async with platform_server(Answer(answer)) as server:
        result = await run_platform(server, "events", "dpl_1")

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "2027-01-15 08:00:00.123  stdout            first",
        "                                           second",
        "2027-01-15 08:00:00.123  request           GET shop.example/a 502",
        "2027-01-15 08:00:00.123  deployment-state  READY deploy",
    ]


@each_case("is_cut", [True, False])
async def test_list_of_events_that_the_platform_has_cut_says_so(*, is_cut: bool) -> None:
    more = [event(1, "later")] if is_cut else []
    async with platform_server(Answer([event(0, "line")] * 100), Answer(more)) as server:
        result = await run_platform(server, "events", "dpl_1")

    assert ("the platform sent only 100 of the events; --limit -1 prints all" in result.stderr) == is_cut
    assert server.received[1].query["limit"] == "1"


async def test_options_of_events_are_sent_and_ages_are_instants() -> None:
    before_ms = int(time.time() * 1_000)
    async with platform_server(Answer([])) as server:
        result = await run_platform(
            server,
            *("events", "shop.example.com", "--direction", "backward", "--limit", "-1", "--status", "5xx"),
            *("--build", "bld_1", "--delimiter", "--no-builds", "--until", "2026-01-31T10:00Z"),
            *("--since", "1h"),
        )

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no events\n")
    query = server.received[0].query
    assert before_ms - HOUR_MS <= int(query.pop("since")) <= time.time() * 1_000 - HOUR_MS
    assert query == {
        "direction": "backward",
        "limit": "-1",
        "statusCode": "5xx",
        "name": "bld_1",
        "delimiter": "1",
        "builds": "0",
        "until": "1769853600000",
        "teamId": "team_1",
    }


@each_case(
    ("arguments", "text"),
    [
        (["--since", "soon"], "--since is neither an age nor an instant"),
        (["--until", "1960-01-01"], "--until is neither an age nor an instant"),
        (["--status", "9xx"], "range like 5xx"),
        (["--limit", "-2"], "-2"),
        (["--follow", "--direction", "backward"], "direction"),
        (["--token-file", "absent"], "absent"),
        (["--base-url", "ftp://a"], "platform.base_url is not an address"),
        (["--base-url", ""], "platform.base_url or --base-url"),
    ],
)
async def test_wrong_option_of_events_is_reported_with_exit_code_2(arguments: list[str], text: str) -> None:
    async with platform_server(Answer([])) as server:
        # The last value of a repeated option is used.
        options = ("--base-url", server.url, "--token-file", "token", "--team", "team_1")
        result = await run("events", "dpl_1", *options, *arguments)

    assert (result.exit_code, server.received) == (2, [])
    assert text in result.stderr


async def test_missing_token_is_reported_with_its_setting() -> None:
    result = await run("events", "dpl_1", "--base-url", "http://127.0.0.1:1")

    assert result.exit_code == 2
    assert "platform.token_file or --token-file" in result.stderr


async def test_settings_and_environment_replace_the_options(directory: Path) -> None:
    async with platform_server(Answer([])) as server:
        (directory / "trace-drain.toml").write_text(
            f'[platform]\nbase_url = "{server.url}"\ntoken_file = "token"\nslug = "shop"\n'
        )
        assert (await run("events", "dpl_1")).exit_code == 0
        assert (await run("events", "dpl_1", "--team", "team_2")).exit_code == 0
        assert (await run("events", "dpl_1", TRACE_DRAIN_PLATFORM_TOKEN="tok_other")).exit_code == 0
        assert (await run("events", "dpl_1", "--token-file", "key")).exit_code == 0

    assert [received.query for received in server.received[:2]] == [{"slug": "shop"}, {"teamId": "team_2"}]
    assert [received.headers["Authorization"] for received in server.received] == [
        *(f"Bearer {token}" for token in (TOKEN, TOKEN, "tok_other", KEY))
    ]


async def test_followed_events_continue_after_a_cut_and_note_it() -> None:
    end = event(2, "done")
    end["payload"]["info"] = {"readyState": "READY"}
    async with platform_server(
        Answer(pieces=[line(event(1, "begin"))], is_cut=True),
        Answer(pieces=[line(event(1, "begin")), line(end)]),
    ) as server:
        result = await run_platform(server, "events", "dpl_1", "--follow", "--format", "jsonl")

    assert result.exit_code == 0, result.stderr
    assert [json.loads(text) for text in result.stdout.splitlines()] == [event(1, "begin"), end]
    assert result.stderr.count("connecting again") == 1


async def test_ctrl_c_ends_followed_events_without_a_traceback(directory: Path) -> None:
    arguments = ["events", "dpl_1", "--follow", "--token-file", "token", "--base-url"]
    async with platform_server(Answer(pieces=[line(event(1, "begin"))], hangs=True)) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "receiver.cli", "platform", *arguments, server.url),
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout
        first = await process.stdout.readline()
        ended = asyncio.ensure_future(process.communicate())
        # One Ctrl-C was without effect once, on a busy machine.
        while not ended.done():
            process.send_signal(signal.SIGINT)
            await asyncio.wait([ended], timeout=30)
        rest, messages = await ended
        await asyncio.wait_for(server.is_left.wait(), 60)

    assert first.endswith(b"begin\n")
    assert (process.returncode, rest, messages) == (EXIT_INTERRUPTED, b"", b"")


@each_case("text", ESCAPES.values(), ids=ESCAPES.keys())
async def test_terminal_escapes_of_events_and_answers_are_neutralized(text: str) -> None:
    answer = [
        event(1, text, type=text),
        {**event(2, ""), "payload": {"proxy": {"method": text, "path": text}}},
    ]
    whole = {"model": text, "choices": [{"message": {"content": text}, "finish_reason": text}]}
    call = {"index": 0, "id": text, "function": {"name": text, "arguments": text}}
    group = {"updatedMicrofrontendsGroup": {"id": text, "name": text, text: text}}
    async with platform_server(Answer(answer)) as server:
        results = [
            await run_platform(server, "events", "dpl_1", "--format", form) for form in ("table", "jsonl")
        ]
        server.script(Answer(whole))
        results.append(await run_gateway(server, "chat", "Hi", "--model", MODEL, "--no-stream"))
        server.script(Answer(pieces=[chunk({"content": text, "tool_calls": [call]}), DONE]))
        results.append(await run_gateway(server, "chat", "Hi", "--model", MODEL))
        server.script(Answer({"data": [{"id": text, "owned_by": text}]}))
        results += [await run_gateway(server, "models", "--format", form) for form in ("table", "jsonl")]
        server.script(Answer(group))
        update = ("microfrontends", "update", "mfe_1", "--name", "a")
        results += [await run_platform(server, *update, "--format", form) for form in ("table", "json")]
        server.script(Answer({"error": {"message": text}}, 400))
        results.append(await run_platform(server, "events", "dpl_1"))

    assert [result.exit_code for result in results] == [0] * 8 + [1]
    assert not [result for result in results if UNSAFE.search(result.output)]


GROUP = {"id": "mfe_1", "name": "Shop", "slug": "shop", "new": 1}


async def test_microfrontends_update_prints_the_group() -> None:
    async with platform_server(Answer({"updatedMicrofrontendsGroup": GROUP})) as server:
        arguments = ("microfrontends", "update", "mfe_1", "--fallback-environment", "PRODUCTION")
        table = await run_platform(server, *arguments)
        document = await run_platform(server, *arguments, "--format", "json")
        empty = await run_platform(server, "microfrontends", "update", "mfe_1")

    assert table.stdout.split() == ["id", "mfe_1", "name", "Shop", "slug", "shop", "new", "1"]
    assert json.loads(document.stdout) == GROUP
    assert json.loads(server.received[0].body) == {"fallbackEnvironment": "PRODUCTION"}
    assert (empty.exit_code, len(server.received)) == (2, 2)


@each_case("status", [400, 401, 403, 404, 429, 500])
async def test_refused_call_has_exit_code_1_and_no_token_in_its_message(status: int) -> None:
    async with platform_server(Answer({"error": {"message": f"{TOKEN} is wrong"}}, status)) as server:
        result = await run_platform(server, "microfrontends", "update", "mfe_1", "--name", "a")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"the platform answered {status} ((hidden) is wrong)" in result.stderr


async def test_models_are_printed() -> None:
    models = [{"id": MODEL, "owned_by": "openai", "new": 1}, {"id": "a/b"}]
    async with platform_server(Answer({"object": "list", "data": models})) as server:
        table = await run_gateway(server, "models")
        lines = await run_gateway(server, "models", "--format", "jsonl")

    assert table.stdout.split() == ["model", "owner", MODEL, "openai", "a/b"]
    assert [json.loads(text) for text in lines.stdout.splitlines()] == models
    assert server.received[0].headers["Authorization"] == f"Bearer {KEY}"


USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}


async def test_chat_prints_the_answer_and_the_usage() -> None:
    message = {"content": "Good day\n\nthere"}
    whole = {"model": MODEL, "choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}
    async with platform_server(
        Answer(pieces=[chunk({"content": "Good "}), chunk({"content": "day\n\nthere"}), DONE]), Answer(whole)
    ) as server:
        streamed = await run_gateway(server, "chat", "Hi", "--model", MODEL)
        at_once = await run_gateway(server, "chat", "Hi", "--model", MODEL, "--no-stream")

    assert (streamed.exit_code, streamed.stdout, streamed.stderr) == (0, "Good day\n\nthere\n", f"{MODEL}\n")
    assert (at_once.exit_code, at_once.stdout) == (0, "Good day\n\nthere\n")
    assert at_once.stderr == f"{MODEL}, finish reason stop, 21 tokens\n"


async def test_chat_sends_system_image_tools_and_provider_order(directory: Path) -> None:
    tools = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}]
    (directory / "tools.json").write_text(json.dumps(tools))
    (directory / "a.png").write_bytes(PNG)
    call = {"index": 0, "id": "call_1", "function": {"name": "get_time", "arguments": "{}"}}
    async with platform_server(Answer(pieces=[chunk({"tool_calls": [call]}), DONE])) as server:
        result = await run_gateway(
            server,
            *("chat", "Hi", "--model", MODEL, "--system", "Be short", "--image", "a.png"),
            *("--tools", "tools.json", "--tool-choice", "auto", "--provider-order", "azure, openai"),
        )

    assert result.exit_code == 0, result.output
    called = {"id": "call_1", "name": "get_time", "arguments": "{}"}
    assert json.loads(result.stdout) == {"tool_call": called}
    body = json.loads(server.received[0].body)
    assert body["messages"] == [
        {"role": "system", "content": "Be short"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgowMDAw"}},
            ],
        },
    ]
    assert (body["tools"], body["tool_choice"]) == (tools, "auto")
    assert body["providerOptions"] == {"gateway": {"order": ["azure", "openai"]}}


@each_case(
    ("answer", "text"),
    [
        (Answer(pieces=[chunk({"content": "Good "})]), "[DONE]"),
        (Answer(pieces=[chunk({"content": "Good "})], is_cut=True), "before the end of the answer"),
        (Answer(pieces=[chunk({"content": "Good "}), b"data: {]\n", DONE]), "not JSON"),
        (Answer(pieces=[chunk({"content": "Good "}), b"<html>\n", DONE]), "event stream"),
    ],
)
async def test_p65_incomplete_stream_has_exit_code_1(answer: Answer, text: str) -> None:
    async with platform_server(answer) as server:
        result = await run_gateway(server, "chat", "Hi", "--model", MODEL)

    assert (result.exit_code, result.stdout) == (1, "Good \n")
    assert text in result.stderr


@each_case(
    ("arguments", "text"),
    [
        (["--model", "gpt"], "PROVIDER/MODEL"),
        (["--model", MODEL, "--image", "absent.png"], "cannot be read"),
        (["--model", MODEL, "--image", "token"], "is no image"),
        (["--model", MODEL, "--tools", "token"], "not JSON"),
        (["--model", MODEL, "--tools", "empty.json"], "expected an array"),
        ([], "--model"),
    ],
)
async def test_wrong_option_of_chat_is_reported_with_exit_code_2(
    directory: Path, arguments: list[str], text: str
) -> None:
    (directory / "empty.json").write_text("{}")
    async with platform_server(Answer({})) as server:
        result = await run_gateway(server, "chat", "Hi", *arguments)

    assert (result.exit_code, server.received) == (2, [])
    assert text in result.stderr


@each_case("command", ["chat", "events", "models", "microfrontends", "microfrontends update"])
async def test_help_of_a_command_of_the_platform(command: str) -> None:
    result = await run(*command.split(), "--help")

    assert result.exit_code == 0
    assert command == "microfrontends" or "Examples:\n    " in result.output
