"""`trace-drain explain`: the preview, the streamed answer, and terminals that stay unharmed."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from receiver.cli import main
from receiver.settings import User
from receiver.supervisor.state import STATE_NAME
from tests.platform.explain.conftest import (
    INJECTIONS,
    MISSING,
    QUERY,
    TRACE,
    Receiver,
    Start,
    calling,
    spoken,
)
from tests.support.access import OPERATOR, VIEWER
from tests.support.cases import each_case
from tests.support.platform_server import Answer

ANSWER = f"The update met a deadlock [span:{QUERY}]. The cache failed [span:{MISSING}]. Done."


async def run(receiver: Receiver, directory: Path, *arguments: str, token: str = OPERATOR.token) -> Result:
    """Run the command beside the receiver."""
    api = f"127.0.0.1:{receiver.client.port}"
    texts = dict.fromkeys(("listen", "admin", "version", "started_at"), "")
    pids = {"supervisor": os.getpid(), "intake": [], "store": 0}
    state = {**texts, "api": api, "urls": {"api": f"http://{api}"}, "pids": pids}
    (directory / STATE_NAME).write_text(json.dumps(state))
    command = ["explain", *arguments, "--data", str(directory)]
    environment = {"TRACE_DRAIN_API_TOKEN": token}
    # The receiver runs in this process, and its log would be a part of the output.
    with capture_logs():
        return await asyncio.to_thread(CliRunner(env=environment).invoke, main, command)


async def test_answer_is_printed_with_its_costs_before_and_after(start: Start, tmp_path: Path) -> None:
    receiver = await start(spoken(ANSWER, usage=(2_000, 100)), input_price=3.0, output_price=10.0)

    result = await run(receiver, tmp_path, TRACE)

    assert result.exit_code == 0, result.output
    assert result.stdout == (
        f"The update met a deadlock [span:{QUERY}]. The cache failed [span:{MISSING}]. "
        f"(not supported: the trace has no span {MISSING}) Done.\n"
    )
    before, after = result.stderr.splitlines()
    assert before.startswith(f"lab/model at {receiver.gateway.url}: ")
    assert " redacted texts (" in before
    assert "cost about 0.0" in before
    assert after == "2,000 tokens sent, 100 tokens received, cost 0.0070"


async def test_dry_run_prints_the_request_byte_for_byte_and_sends_nothing(
    start: Start, tmp_path: Path
) -> None:
    receiver = await start(spoken("Yes."))

    result = await run(receiver, tmp_path, TRACE, "--dry-run")
    assert receiver.gateway.received == []
    await receiver.explained()

    assert result.exit_code == 0
    assert result.stdout_bytes == receiver.gateway.received[0].body + b"\n"
    assert "are not set" in result.stderr


async def test_show_sent_prints_what_each_request_adds(start: Start, tmp_path: Path) -> None:
    receiver = await start(calling(("errors", {})), spoken("Yes."))

    result = await run(receiver, tmp_path, TRACE, "--show-sent")

    assert '"role": "tool"' in result.stderr
    assert "the model called errors {}" in result.stderr
    assert result.stdout == "Yes.\n"


@each_case(
    ("answer", "problems"),
    [
        pytest.param(
            Answer({}, status=401),
            ("there is no answer: the gateway answered 401", "0 tokens sent"),
            id="no answer",
        ),
        pytest.param(
            spoken("The cause is", is_cut=True),
            ("the answer was cut: ", "what was printed is not an explanation"),
            id="cut",
        ),
    ],
)
async def test_answer_that_is_not_complete_is_an_error(
    receiver: Receiver, tmp_path: Path, answer: Answer, problems: tuple[str, ...]
) -> None:
    receiver.gateway.script(answer)

    result = await run(receiver, tmp_path, TRACE)

    assert result.exit_code == 1
    assert [text for text in problems if text not in result.stderr] == []


async def test_escape_sequences_of_the_model_do_not_reach_the_terminal(start: Start, tmp_path: Path) -> None:
    receiver = await start(calling(*[(text, {text: text}) for text in INJECTIONS]), spoken(*INJECTIONS))

    result = await run(receiver, tmp_path, TRACE, "--show-sent")

    assert result.exit_code == 0
    assert [each for each in result.output if not each.isprintable() and each != "\n"] == []
    assert "\\x1b]0;owned\\x07" in result.stdout


@each_case(
    ("trace_id", "user", "expected"),
    [
        ("nothex", OPERATOR, (2, "expected 32 hex digits")),
        ("e" * 32, OPERATOR, (1, "no span of this trace is stored")),
        (TRACE, VIEWER, (1, "expected the role 'operator'")),
    ],
)
async def test_wrong_use_is_explained(
    receiver: Receiver, tmp_path: Path, trace_id: str, user: User, expected: tuple[int, str]
) -> None:
    result = await run(receiver, tmp_path, trace_id, token=user.token)

    assert (result.exit_code, receiver.gateway.received) == (expected[0], [])
    assert expected[1] in result.stderr


async def test_command_says_which_settings_are_missing(start: Start, tmp_path: Path) -> None:
    receiver = await start(spoken("Yes."), model="")

    result = await run(receiver, tmp_path, TRACE)

    assert result.exit_code == 1
    assert "explanations are off; expected the settings platform.explain.model" in result.stderr


def test_command_needs_a_receiver(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["explain", TRACE, "--data", str(tmp_path)])

    assert result.exit_code == 1
    assert "no receiver runs" in result.output
