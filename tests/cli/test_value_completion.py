"""Tests of the completion of services, attributes, deployments and filters in the shell."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from receiver.cli.console import value_completion
from receiver.console.queries.filters.filter_text import parse_trace_filter
from receiver.supervisor.state import STATE_NAME
from tests.support.cases import each_case
from tests.support.commands import run
from tests.support.fake_api import ApiHandler, receiver_with, write_state

BASH = shutil.which("bash") or "bash"
BASH_BREAKS = " \t\n\"'@><=;|&(:"
ANSWERS = {
    "services": [{"service": name} for name in ("web", "worker", "cart", "", "we\x1b[2J")],
    "deployments": [
        {"project": "prj_1", "deployment": "dpl_1"},
        {"project": "prj_1", "deployment": "dpl_2"},
        {"project": "", "deployment": "dpl_2"},
        {"project": "", "deployment": ""},
        {"project": "", "deployment": "next"},
    ],
    "attributes": [
        {"scope": "span", "key": "http.route"},
        {"scope": "resource", "key": "host"},
        {"scope": "span", "key": "host"},
    ],
}


VALUES = {
    "http.route": [
        {"scope": scope, "key": "http.route", "value": value}
        for scope, value in (("span", "/a"), ("resource", "/a"), ("span", 'b c "*"'), ("span", "d\x1b[2J"))
    ]
}


class Handler(ApiHandler):
    """Fake API of a receiver, which needs no token."""

    def lines_for(self, query: dict[str, str]) -> list[str]:
        name = urlsplit(self.path).path.rpartition("/")[2]
        rows = VALUES.get(query["key"], []) if "key" in query else ANSWERS[name]
        return [json.dumps(row) for row in [*rows, {"end": {"count": len(rows), "cut": False}}]]


@pytest.fixture
def receiver_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(value_completion, "ANSWER_S", 60)
    with receiver_with(Handler, tmp_path) as directory:
        yield directory


def completions(typed: str, incomplete: str, shell: str = "fish") -> list[str]:
    """Return what a shell shows for a command line; `incomplete` is its last word, which may be empty."""
    environ = {
        "_TRACE_DRAIN_COMPLETE": f"{shell}_complete",
        "COMP_LINE": f"{typed} {incomplete}",
        "COMP_WORDBREAKS": BASH_BREAKS,
    }
    result = run(**environ)
    assert result.stderr == ""
    if shell == "zsh":
        return result.stdout.splitlines()[1::3]
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


@each_case(
    ("typed", "incomplete", "expected"),
    [
        ("operations", "w", ["web", "worker"]),
        ("operations", "", ["web", "worker", "cart"]),
        ("spans --service", "c", ["cart"]),
        ("attributes", "h", ["host", "http.route"]),
        ("red --by", "ht", ["http.route"]),
        ("red --by", "s", ["service", "status", "span.host"]),
        ("red --by", "re", ["resource.host"]),
        ("red --spans", "r", []),
        ("spans", "--service=c", ["--service=cart"]),
        ("spans --project", "", ["prj_1"]),
        ("compare", "d", ["dpl_1", "dpl_2"]),
        ("compare dpl_1", "", ["dpl_1", "dpl_2", "next"]),
    ],
)
def test_names_are_completed(receiver_dir: str, typed: str, incomplete: str, expected: list[str]) -> None:
    command, *rest = typed.split()
    line = " ".join(["trace-drain", command, "--data", receiver_dir, *rest])

    assert completions(line, incomplete) == expected


FILTERS = [
    pytest.param("service=we", ["service=web"], id="service"),
    pytest.param('service="we', ['service="web"'], id="quoted value"),
    pytest.param("kind!=c", ["kind!=client", "kind!=consumer"], id="words"),
    pytest.param("deployment=", ["deployment=dpl_1", "deployment=dpl_2", "deployment=next"], id="deployment"),
    pytest.param("project", ["project=prj_1"], id="value of the only field"),
    pytest.param("http.route=/", ["http.route=/a"], id="attribute"),
    pytest.param("resource.http.route=", ["resource.http.route=/a"], id="attribute of the resource"),
    pytest.param("http.ro", ["http.route=/a", r'http.route="b c \"\*\""'], id="value of the only key"),
    pytest.param("span.ht", ["span.http.route=/a", r'span.http.route="b c \"\*\""'], id="long form of a key"),
    pytest.param("span.hos", ["span.host="], id="key without values"),
    pytest.param("root kind=se", ["root kind=server"], id="after another comparison"),
    pytest.param("-status=e", ["-status=error"], id="negation"),
    pytest.param("(root OR -(kind=se", ["(root OR -(kind=server"], id="parentheses"),
    pytest.param("{service=web} && {status=o", ["{service=web} && {status=ok"], id="spansets"),
    pytest.param("durat", ["duration>"], id="duration"),
    pytest.param("trace:sp", ["trace:spans>"], id="field of the trace"),
    pytest.param('name="open qu', [], id="value without names"),
    pytest.param('{"field": "serv', [], id="JSON"),
]


@each_case("shell", ["zsh", "fish"])
@each_case(("text", "expected"), FILTERS)
def test_last_comparison_of_a_filter_is_completed(
    receiver_dir: str, text: str, expected: list[str], shell: str
) -> None:
    assert completions(f"trace-drain search --data {receiver_dir}", f"'{text}", shell) == expected
    assert parse_all(expected)


def parse_all(filters: list[str]) -> bool:
    """Parse those that are whole; raises for a filter that is not valid."""
    for text in filters:
        if not text.endswith(("=", ">")) and text.count("(") == text.count(")"):
            parse_trace_filter(f"{text}}}" if text.count("{") > text.count("}") else text)
    return True


@each_case("command", ["tail", "shifts", "export -o x", "red --filter", "shifts root --against"])
def test_filter_of_every_command_is_completed_without_fields_of_the_trace(
    receiver_dir: str, command: str
) -> None:
    name, *rest = command.split()
    line = " ".join(["trace-drain", name, "--data", receiver_dir, *rest])

    assert completions(line, "service=we") == ["service=web"]
    assert "service=" in completions(line, "")
    assert completions(line, "trace:") == []


@each_case(
    ("incomplete", "expected"),
    [
        pytest.param("service=we", ["web"], id="after the sign that divides words"),
        pytest.param("'service=we", ["service=web"], id="open quotation mark"),
        pytest.param("'root service=we", ["root service=web"], id="word with a space"),
        pytest.param("trace:durat", [r"duration\>"], id="character that the shell interprets"),
        pytest.param("'http.route=b", [], id="plain value"),
        pytest.param("'http.route=\"b", [r'http.route="b c \"\*\""'], id="quotation marks within"),
        pytest.param('"-status=e', ["-status=error"], id="negation in double quotation marks"),
        pytest.param(r"root\ kind=se", ["server"], id="escaped space"),
        pytest.param("--lim", ["--limit"], id="option"),
    ],
)
def test_bash_gets_the_part_of_the_word_that_it_replaces(
    receiver_dir: str, incomplete: str, expected: list[str]
) -> None:
    found = completions(f"trace-drain search --data {receiver_dir}", incomplete, "bash")

    assert [text.rstrip("=") for text in found] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_valid_in_its_shell_and_calls_the_program(tmp_path: Path, shell: str) -> None:
    printed = run("completion", shell)
    assert printed.exit_code == 0, printed.output
    assert f"_TRACE_DRAIN_COMPLETE={shell}_complete" in printed.stdout
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "completion"
    script.write_text(printed.stdout)

    checked = subprocess.run([program, "-n", str(script)], capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_an_option_by_its_script(tmp_path: Path) -> None:
    command = tmp_path / "trace-drain"
    command.write_text(f"#!{sys.executable}\nfrom receiver.cli import main\nmain(prog_name='trace-drain')\n")
    command.chmod(0o700)
    script = run("completion", "bash").stdout
    typed = "trace-drain spans --form"
    code = f"{script}\nCOMP_LINE={shlex.quote(typed)} COMP_POINT={len(typed)}\n"
    code += f'_trace_drain_completion {command}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'

    shown = subprocess.run([BASH, "-c", code], capture_output=True, text=True, check=False)

    assert shown.stdout == "--format\n"


def test_completion_is_empty_if_the_receiver_does_not_answer_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_completion, "ANSWER_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        write_state(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")

        assert completions(f"trace-drain operations --data {tmp_path}", "") == []


@pytest.mark.parametrize("state", [None, "{", "refused"])
def test_completion_is_empty_without_an_error_if_no_receiver_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    monkeypatch.setattr(value_completion, "ANSWER_S", 60)
    if state == "refused":
        with socket.create_server(("127.0.0.1", 0)) as closed:
            write_state(tmp_path, f"http://127.0.0.1:{closed.getsockname()[1]}")
    elif state is not None:
        (tmp_path / STATE_NAME).write_text(state)

    assert completions(f"trace-drain operations --data {tmp_path}", "") == []
    assert completions(f"trace-drain red --data {tmp_path} --by", "servi") == ["service"]
    assert completions("trace-drain operations --config absent.toml", "") == []
