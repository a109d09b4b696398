"""Tests of the command line: commands, suggestions, and one-line error messages."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import VERBS, main
from tests.support.cases import each_case

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env=environ, prog_name="trace-drain")


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty directory, so that no configuration file is found by accident."""
    monkeypatch.chdir(tmp_path)


@each_case("command", sorted(VERBS))
def test_every_command_prints_help(command: str) -> None:
    result = run(command, "--help")

    assert result.exit_code == 0, result.output
    assert "Usage: trace-drain" in result.output


def test_help_lists_every_command() -> None:
    result = run("--help")

    assert [command for command in VERBS if command not in result.output] == []


def test_mistyped_command_gets_a_suggestion() -> None:
    result = run("srve")

    assert result.exit_code == 2
    assert "serve" in result.output


def test_mistyped_flag_gets_a_suggestion() -> None:
    result = run("serve", "--listn", "x")

    assert result.exit_code == 2
    assert "--listen" in result.output


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


def test_sampling_explain_prints_the_decision_and_its_inputs() -> None:
    result = run(
        "sampling", "explain", "4bf92f3577b34da6a3ce929d0e0e4736", "--mode", "hash_seed", "--percent", "25",
        "--format", "json",
    )  # fmt: skip

    output = json.loads(result.output)
    assert output["keep"] is True
    assert output["weight"] == 4
    assert (output["mode"], output["rate"], output["rule"]) == ("hash_seed", 0.25, None)
    assert output["ignored"] == []


def test_sampling_explain_names_malformed_trace_state_fields() -> None:
    arguments = ("sampling", "explain", "4bf92f3577b34da6a3ce929d0e0e4736", "--tracestate", "ot=th:xyz;rv:1")

    assert "'th' and 'rv' of the trace state: malformed; counted as absent" in run(*arguments).output
    assert json.loads(run(*arguments, "--format", "json").output)["ignored"] == ["th", "rv"]


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


def test_rate_and_percent_together_are_refused() -> None:
    result = run(
        "sampling", "explain", "4bf92f3577b34da6a3ce929d0e0e4736", "--rate", "0.5", "--percent", "50"
    )

    assert (result.exit_code, result.output) == (
        2,
        "trace-drain: --rate and --percent are both given; expected one\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("schema print --engine 2\u00b26.1", id="not an ASCII digit"),
        pytest.param("schema print --engine 26." + "9" * 5000, id="thousands of digits"),
        pytest.param("config check --store http://h:0/db", id="port 0 of a store"),
        pytest.param("config check --config=", id="an empty file name"),
        pytest.param("dead drop --data=. --yes ''", id="an empty id"),
        pytest.param("load http://127.0.0.1:1 --duration nan", id="duration is not a number"),
        pytest.param("load http://127.0.0.1:1 --rate inf --requests 1", id="infinite rate"),
        pytest.param("sampling explain 4bf92f3577b34da6a3ce929d0e0e4736 --tracestate \udcff", id="not UTF-8"),
    ],
)
def test_invalid_value_is_refused_with_the_expected_value(arguments: str) -> None:
    result = run(*shlex.split(arguments))

    assert result.exit_code == 2
    assert "expected " in result.output
    assert isinstance(result.exception, SystemExit)


def test_invalid_trace_id_is_refused_without_a_traceback() -> None:
    result = run("sampling", "explain", "xyz")

    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
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


def test_config_check_refuses_a_pseudo_file_system_without_a_size_warning() -> None:
    result = run("config", "check", "--data", "/proc/x")

    assert result.exit_code == 2
    assert "data_dir '/proc/x' cannot be used" in result.output
    assert "warning" not in result.output


def test_config_check_refuses_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")

    result = run("config", "check", "--data", str(tmp_path / "link"))

    assert result.exit_code == 2
    assert f"no permission to write in '{tmp_path / 'link'}'" in result.output
