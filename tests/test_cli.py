"""The command line: verbs, suggestions, one message for what an operator did wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import VERBS, main


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
    assert "'TRACE_DRAIN_INTAKES' (environment TRACE_DRAIN_INTAKES) is 'none'; expected `int`" in found.output
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
    assert set(shown) == {"keep", "weight", "threshold", "reason"}


def test_a_rate_is_said_once() -> None:
    found = run("sampling", "explain", "4bf92f3577b34da6a3ce929d0e0e4736", "--rate", "0.5", "--percent", "50")

    assert (found.exit_code, found.output) == (
        2,
        "trace-drain: --rate and --percent are both given; expected one\n",
    )


def test_what_is_no_trace_id_is_told() -> None:
    found = run("sampling", "explain", "xyz")

    assert found.exit_code == 2
    assert "Traceback" not in found.output


@pytest.mark.parametrize("words", ["ledger", "dead ls", "dead show x", "journal ls", "journal verify"])
def test_a_data_directory_that_is_not_there_is_not_taken_for_an_empty_one(words: str) -> None:
    done = run(*words.split(), "--data", "mistyped")

    assert done.exit_code == 2
    expected = "expected one made by `trace-drain serve --data mistyped`"
    assert done.output == f"trace-drain: no data directory 'mistyped'; {expected}\n"
