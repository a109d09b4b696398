"""Tests of the command line: commands, suggestions, and one-line error messages."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.cli import VERBS
from tests.support.cases import each_case
from tests.support.commands import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty directory, so that no configuration file is found by accident."""
    monkeypatch.chdir(tmp_path)


def test_help_lists_every_command() -> None:
    result = run("--help")

    assert [command for command in VERBS if command not in result.output] == []


def test_invalid_configuration_prints_a_message_without_a_traceback() -> None:
    result = run("config", "check", TRACE_DRAIN_INTAKES="none", TRACE_DRAIN_LISTEN="x")

    assert result.exit_code == 2
    assert (
        "'TRACE_DRAIN_INTAKES' (environment TRACE_DRAIN_INTAKES) is 'none'; expected a whole number"
        in result.output
    )
    assert "Traceback" not in result.output


def test_config_check_accepts_a_valid_configuration(tmp_path: Path) -> None:
    # Free ports: a receiver on this machine may use the default ports.
    ports = "".join(f'{name} = "127.0.0.1:0"\n' for name in ("listen", "admin_listen", "api_listen"))
    (tmp_path / "trace-drain.toml").write_text(f"intakes = 2\n{ports}")

    result = run("config", "check")

    assert (result.exit_code, result.output) == (0, "the configuration is fine\n")


def test_config_show_lists_origins_and_hides_secrets() -> None:
    result = run(
        "config", "show", "--format", "json", "--store", "http://u:canary@h", TRACE_DRAIN_API_TOKEN="canary"
    )

    output = json.loads(result.output)
    assert output["store.url"] == {"value": "http://u@h:8123", "origin": "flag --store"}
    assert output["api_token"]["value"] == "(set)"
    assert "canary" not in result.output


def test_version_lists_core_engine_and_libraries() -> None:
    output = json.loads(run("version", "--format", "json").output)

    assert set(output) >= {"version", "core", "core_profile", "aiohttp", "engine"}
    assert output["core_profile"] in ("release", "debug")


def test_schema_print_accepts_the_data_option() -> None:
    assert run("schema", "print", "--data", "absent").exit_code == 0


def test_schema_print_shows_the_columns_of_promoted_attributes(tmp_path: Path) -> None:
    config = tmp_path / "trace-drain.toml"
    config.write_text("[store]\npromoted_attributes = ['resource:app.cell cell']\n")

    printed = run("schema", "print", "--config", str(config)).output

    assert "`Span_http_route` LowCardinality(Nullable(String)) MATERIALIZED" in printed
    assert "COMMENT 'resource:app.cell cell'" in printed
    assert "arrayElementOrNull" not in run("schema", "print", "--engine", "24.9").output


def test_unreachable_store_prints_a_message_without_a_traceback(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "receiver.cli", "schema", "status"]
    environ = {**os.environ, "TRACE_DRAIN_STORE__URL": "http://127.0.0.1:1", "PYTHONPATH": str(ROOT)}

    result = subprocess.run(arguments, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert result.stderr == (
        "trace-drain: the store: no answer at 127.0.0.1:1: connection refused; "
        "expected ClickHouse's HTTP interface there (store.url)\n"
    )


def test_closed_standard_descriptors_are_not_reused() -> None:
    code = (
        "import os; os.close(0); os.close(1); from receiver.cli import main\n"
        "main(['config', 'check'], standalone_mode=False)\n"
        "os._exit(os.open('/', os.O_RDONLY) if os.get_inheritable(0) and os.get_inheritable(1) else 0)"
    )

    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)

    assert result.returncode > 2


@each_case(
    "arguments",
    [
        pytest.param("sampling explain xyz", id="not a trace id"),
        pytest.param(
            "sampling explain 4bf92f3577b34da6a3ce929d0e0e4736 --rate 1 --percent 5", id="two rates"
        ),
        pytest.param("schema print --engine 2\u00b26.1", id="not an ASCII digit"),
        pytest.param("schema print --engine 26." + "9" * 5000, id="thousands of digits"),
        pytest.param("config check --store http://h:0/db", id="port 0 of a store"),
        pytest.param("config check --config=", id="an empty file name"),
        pytest.param("dead drop --data=. --yes ''", id="an empty id"),
        pytest.param("load http://127.0.0.1:1 --duration nan", id="duration is not a number"),
        pytest.param("load http://127.0.0.1:1 --rate inf --requests 1", id="infinite rate"),
        pytest.param("sampling explain 4bf92f3577b34da6a3ce929d0e0e4736 --tracestate \u00e9", id="not ASCII"),
        pytest.param("spans --service \udcff", id="not UTF-8"),
    ],
)
def test_invalid_value_is_refused_with_the_expected_value(arguments: str) -> None:
    result = run(*shlex.split(arguments))

    assert result.exit_code == 2
    assert "expected " in result.output
    assert isinstance(result.exception, SystemExit)


@each_case(
    "arguments",
    ["ledger", "spans", f"trace {'1' * 32}", "dead ls", "dead show x", "journal ls", "journal verify"],
)
def test_missing_data_directory_is_an_error(arguments: str) -> None:
    result = run(*arguments.split(), "--data", "mistyped")

    assert result.exit_code == 2
    expected = "`trace-drain serve --data mistyped` creates it; set --data DIR or --config FILE for another"
    assert result.output == f"trace-drain: no data directory 'mistyped'; {expected}\n"


def test_config_check_refuses_a_directory_without_write_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked_paths: list[Path] = []

    def deny_access(path: Path, _mode: int, *, effective_ids: bool) -> bool:  # root may write anywhere
        checked_paths.append(path)
        return not effective_ids

    monkeypatch.setattr(os, "access", deny_access)
    result = run("config", "check", "--data", str(tmp_path / "a" / "b"))

    assert result.exit_code == 2
    assert f"no permission to write in '{tmp_path}'; expected a directory that this user may" in result.output
    assert checked_paths == [tmp_path]
    assert list(tmp_path.iterdir()) == []


def test_config_check_refuses_a_pseudo_file_system_and_a_dangling_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")

    pseudo = run("config", "check", "--data", "/proc/x")
    dangling = run("config", "check", "--data", str(link))

    assert (pseudo.exit_code, dangling.exit_code) == (2, 2)
    assert "data_dir '/proc/x' cannot be used" in pseudo.output
    assert "warning" not in pseudo.output
    assert f"no permission to write in '{link}'" in dangling.output
