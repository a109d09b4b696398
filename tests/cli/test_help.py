"""Tests of help texts, exit codes and completion of the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from receiver.cli import EXIT_INTERRUPTED, VERBS, main
from receiver.errors import CommandFailed, OperatorError
from tests.support.cases import each_case
from tests.support.commands import run

FREE_PORTS = "config check --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --api-listen 127.0.0.1:0"
ROOT = Path(__file__).parents[2]


def test_documented_exit_codes_match_the_program() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    table = page.partition("## Exit codes")[2].partition("\n## ")[0]

    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]

    assert codes == [0, CommandFailed.exit_code, OperatorError.exit_code, EXIT_INTERRUPTED]


@each_case(
    ("arguments", "code"),
    [
        pytest.param("--version", 0, id="version"),
        pytest.param(FREE_PORTS, 0, id="fine"),
        pytest.param("spans --data .", 1, id="no store"),
        pytest.param("dead show x --data .", 1, id="no such dead letter"),
        pytest.param("dead drop x --data .", 1, id="no receiver runs"),
        pytest.param("journal inspect 0000000000000001-0000000001 --data .", 1, id="no such segment"),
        pytest.param("schema status --store http://127.0.0.1:1", 1, id="store does not answer"),
        pytest.param("config check --config absent.toml", 2, id="no such configuration file"),
        pytest.param("config show --intakes many", 2, id="setting of the wrong type"),
        pytest.param("spans --data absent", 2, id="no such data directory"),
        pytest.param("spans --limit 0 --data .", 2, id="option out of range"),
        pytest.param("spans --lmit 5", 2, id="unknown option"),
        pytest.param("shcema", 2, id="unknown command"),
        pytest.param("trace", 2, id="missing argument"),
    ],
)
def test_command_exits_with_the_documented_code(
    arguments: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"TRACE_DRAIN_STORE__URL": "http://127.0.0.1:1"} if "--store" in arguments else {}

    result = run(*arguments.replace(" --store http://127.0.0.1:1", "").split(), **environ)

    assert result.exit_code == code, result.output


GROUPS = ["config", "dead", "journal", "platform", "rollup", "sampling", "schema", "store", "views"]


@each_case("group", ["", *GROUPS])
def test_help_of_a_group_is_not_truncated_and_a_mistyped_command_lists_its_commands(group: str) -> None:
    mistyped = run(*group.split(), "zzz")

    assert "..." not in run(*group.split(), "--help").output.replace("[ARGS]...", "")
    assert mistyped.exit_code == 2
    assert "no such command 'zzz'; expected " in mistyped.output


@each_case("command", sorted(VERBS))
def test_help_of_a_command_has_examples(command: str) -> None:
    result = run(command, "--help")

    assert result.exit_code == 0, result.output
    assert "Usage: trace-drain" in result.output
    assert ("Examples:\n    " in result.output) == (command not in {*GROUPS, "ledger", "version"})


def commands_of(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command and of all commands in it."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) is not None:
                yield from commands_of(inner, *words, name)


def test_help_of_every_command_fits_80_columns() -> None:
    helps = {words: run(*words, "--help", COLUMNS="80").output for words in commands_of(main)}

    assert len(helps) > len(VERBS)
    assert {
        words: line for words, text in helps.items() for line in text.splitlines() if len(line) > 80
    } == {}


def test_mistyped_command_or_flag_gets_a_suggestion() -> None:
    command, flag = run("srve"), run("serve", "--listn", "x")

    assert (command.exit_code, flag.exit_code) == (2, 2)
    assert "did you mean 'serve'?" in command.output
    assert "--listen" in flag.output


@each_case("command", ["search", "tail", "export", "shifts"])
def test_command_with_a_filter_has_both_help_options_and_reports_a_mistyped_option(command: str) -> None:
    mistyped = run(command, "service=web", "--sinze", "1h")

    assert run(command, "-h").output == run(command, "--help").output
    assert (mistyped.exit_code, mistyped.stdout) == (2, "")
    assert "No such option '--sinze'. Did you mean '--since'?" in mistyped.stderr


def test_help_of_a_value_does_not_change_its_case() -> None:
    text = " ".join(run("red", "--help").output.split())

    assert "A field (service, operation, project, deployment, kind or status) or an attribute" in text
    assert "The spans that count, requests (" in text


@each_case(
    ("typed", "expected"),
    [
        ("trace-drain sp", ["spans"]),
        ("trace-drain dead re", ["replay"]),
        ("trace-drain spans --li", ["--limit"]),
    ],
)
def test_commands_and_options_are_completed(typed: str, expected: list[str]) -> None:
    result = run(_TRACE_DRAIN_COMPLETE="bash_complete", COMP_LINE=typed)

    assert [line.partition(",")[2] for line in result.output.splitlines()] == expected


def test_command_name_is_completed_without_loading_the_commands() -> None:
    code = (
        "import sys; from receiver.cli import main\n"
        "try: main(['spans'], prog_name='trace-drain', complete_var='C')\n"
        "except SystemExit: pass\n"
        "sys.exit(sum(name.startswith('receiver.engine') for name in sys.modules))"
    )
    environ = {"C": "bash_complete", "COMP_LINE": "trace-drain s"}

    result = subprocess.run([sys.executable, "-c", code], env=environ, cwd=ROOT, check=False)

    assert result.returncode == 0
