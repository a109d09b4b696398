"""The command line: verbs, suggestions, one message for what an operator did wrong."""

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

ROOT = Path(__file__).parents[2]


def run(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(main, list(words), env=environ, prog_name="trace-drain")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration file lies about by accident."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_explains_itself(verb: str) -> None:
    found = run(verb, "--help")

    assert found.exit_code == 0, found.output
    assert "Usage: trace-drain" in found.output


def test_help_names_every_verb() -> None:
    found = run("--help")

    assert [verb for verb in VERBS if verb not in found.output] == []


def test_a_verb_that_is_none_is_answered_with_one_that_is() -> None:
    found = run("srve")

    assert found.exit_code == 2
    assert "serve" in found.output


def test_a_flag_that_is_none_is_answered_with_one_that_is() -> None:
    found = run("serve", "--listn", "x")

    assert found.exit_code == 2
    assert "--listen" in found.output


def test_a_broken_configuration_is_one_message_without_a_traceback() -> None:
    found = run("config", "check", TRACE_DRAIN_INTAKES="none", TRACE_DRAIN_LISTEN="x")

    assert found.exit_code == 2
    assert (
        "'TRACE_DRAIN_INTAKES' (environment TRACE_DRAIN_INTAKES) is 'none'; expected a whole number"
        in found.output
    )
    assert "Traceback" not in found.output


def test_a_configuration_that_serve_would_take_is_fine(tmp_path: Path) -> None:
    (tmp_path / "trace-drain.toml").write_text("intakes = 2")

    found = run("config", "check")

    assert (found.exit_code, found.output) == (0, "the configuration is fine\n")


def test_flags_files_and_secrets_are_shown_with_their_origin() -> None:
    found = run(
        "config", "show", "--format", "json", "--store", "http://u:canary@h", TRACE_DRAIN_API_TOKEN="canary"
    )

    shown = json.loads(found.output)
    assert shown["store.url"] == {"value": "http://u@h:8123", "origin": "flag --store"}
    assert shown["api_token"]["value"] == "(set)"
    assert "canary" not in found.output


def test_the_version_says_what_runs() -> None:
    shown = json.loads(run("version", "--format", "json").output)

    assert set(shown) >= {"version", "core", "core_profile", "aiohttp", "engine"}
    assert shown["core_profile"] in ("release", "debug")


def test_a_sampling_decision_is_explained() -> None:
    found = run(
        "sampling", "explain", "4bf92f3577b34da6a3ce929d0e0e4736", "--mode", "hash_seed", "--percent", "25",
        "--format", "json",
    )  # fmt: skip

    shown = json.loads(found.output)
    assert shown["keep"] is True
    assert shown["weight"] == 4
    assert (shown["mode"], shown["rate"], shown["rule"]) == ("hash_seed", 0.25, None)
    assert shown["ignored"] == []


def test_a_trace_state_that_is_not_understood_is_told() -> None:
    words = ("sampling", "explain", "4bf92f3577b34da6a3ce929d0e0e4736", "--tracestate", "ot=th:xyz;rv:1")

    assert "'th' and 'rv' of the trace state: malformed; counted as absent" in run(*words).output
    assert json.loads(run(*words, "--format", "json").output)["ignored"] == ["th", "rv"]


def test_the_schema_is_printed_for_the_data_directory_of_its_siblings() -> None:
    assert run("schema", "print", "--data", "elsewhere").exit_code == 0


def test_a_server_that_is_away_is_told_without_a_traceback(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "receiver.cli", "schema", "status"]
    environ = {**os.environ, "TRACE_DRAIN_STORE__URL": "http://127.0.0.1:1", "PYTHONPATH": str(ROOT)}

    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr == (
        "trace-drain: the store: no answer at 127.0.0.1:1: connection refused; "
        "expected ClickHouse's HTTP interface there (store.url)\n"
    )


def test_descriptors_that_were_closed_are_not_taken_by_others() -> None:
    code = (
        "import os; os.close(0); os.close(1); from receiver.cli import main\n"
        "main(['config', 'check'], standalone_mode=False)\n"
        "os._exit(os.open('/', os.O_RDONLY) if os.get_inheritable(0) and os.get_inheritable(1) else 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)

    assert done.returncode > 2


def test_a_rate_is_said_once() -> None:
    found = run("sampling", "explain", "4bf92f3577b34da6a3ce929d0e0e4736", "--rate", "0.5", "--percent", "50")

    assert (found.exit_code, found.output) == (
        2,
        "trace-drain: --rate and --percent are both given; expected one\n",
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("schema print --engine 2\u00b26.1", id="a digit that is none"),
        pytest.param("schema print --engine 26." + "9" * 5000, id="digits without end"),
        pytest.param("config check --store http://h:0/db", id="port 0 of a store"),
        pytest.param("config check --config=", id="an empty file name"),
        pytest.param("dead drop --data=. --yes ''", id="an empty id"),
        pytest.param("load http://127.0.0.1:1 --duration nan", id="a duration that is no number"),
        pytest.param("load http://127.0.0.1:1 --rate inf --requests 1", id="a rate without end"),
        pytest.param("sampling explain 4bf92f3577b34da6a3ce929d0e0e4736 --tracestate \udcff", id="no text"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(words: str) -> None:
    done = run(*shlex.split(words))

    assert done.exit_code == 2
    assert "expected " in done.output
    assert isinstance(done.exception, SystemExit)


def test_what_is_no_trace_id_is_told() -> None:
    found = run("sampling", "explain", "xyz")

    assert found.exit_code == 2
    assert "Traceback" not in found.output


@pytest.mark.parametrize(
    "words",
    ["ledger", "spans", f"trace {'1' * 32}", "dead ls", "dead show x", "journal ls", "journal verify"],
)
def test_a_data_directory_that_is_not_there_is_not_taken_for_an_empty_one(words: str) -> None:
    done = run(*words.split(), "--data", "mistyped")

    assert done.exit_code == 2
    expected = "expected one made by `trace-drain serve --data mistyped`: give --data DIR or --config FILE"
    assert done.output == f"trace-drain: no data directory 'mistyped'; {expected}\n"


def test_check_refuses_a_directory_in_which_nothing_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def nowhere(path: Path, _mode: int, *, effective_ids: bool) -> bool:  # root may write anywhere
        asked.append(path)
        return not effective_ids

    monkeypatch.setattr(os, "access", nowhere)
    done = run("config", "check", "--data", str(tmp_path / "a" / "b"))

    assert done.exit_code == 2
    assert f"no permission to write in '{tmp_path}'; expected a directory that this user may" in done.output
    assert asked == [tmp_path]
    assert list(tmp_path.iterdir()) == []


def test_check_refuses_what_is_no_disk_and_does_not_warn_of_its_size() -> None:
    done = run("config", "check", "--data", "/proc/x")

    assert done.exit_code == 2
    assert "data_dir '/proc/x' cannot be used" in done.output
    assert "warning" not in done.output


def test_check_refuses_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")

    done = run("config", "check", "--data", str(tmp_path / "link"))

    assert done.exit_code == 2
    assert f"no permission to write in '{tmp_path / 'link'}'" in done.output
