"""Tests of `trace-drain sampling explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from tests.support.cases import each_case

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
"""Its randomness is ce929d0e0e4736."""
THRESHOLD = "e6660000000000 (keeps 10.0006 % of all traces)"
CONFIG = """
[sampling]
rate = 0.5
[[sampling.rule]]
drain = "eu"
project = "prj_1"
rate = 0.1
[[sampling.rule]]
service = "web"
environment = "production"
rate = 0
[[drain]]
name = "eu"
token = "a"
[[drain]]
name = "us"
token = "b"
"""


@pytest.fixture(autouse=True)
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the configuration file into the working directory, and return its path."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trace-drain.toml"
    path.write_text(CONFIG)
    return path


def explain(*arguments: str, trace: str = TRACE) -> Result:
    return CliRunner().invoke(main, ["sampling", "explain", trace, *arguments])


@each_case(
    ("arguments", "rule", "rate", "keep"),
    [
        pytest.param("", None, 0.5, True, id="no rule"),
        pytest.param("--drain eu --project prj_1", 1, 0.1, False, id="first rule"),
        pytest.param("--drain us --project prj_1", None, 0.5, True, id="another drain"),
        pytest.param("--service web --environment production", 2, 0, False, id="second rule"),
        pytest.param("--service web", None, 0.5, True, id="half of the second rule"),
        pytest.param("--drain eu --project prj_1 --service web", 1, 0.1, False, id="both rules"),
    ],
)
def test_first_matching_rule_decides(
    arguments: str,
    rule: int | None,
    rate: float,
    keep: bool,  # noqa: FBT001 - a row of the table
) -> None:
    explanation = json.loads(explain(*arguments.split(), "--format", "json").output)

    assert (
        explanation["rule"] and explanation["rule"]["number"],
        explanation["rate"],
        explanation["keep"],
    ) == (rule, rate, keep)


def test_text_explains_each_step() -> None:
    assert explain("--drain", "eu", "--project", "prj_1").output.splitlines() == [
        f"spans of trace {TRACE} are dropped",
        "  mode        equalizing",
        "  rule        1 of 2 matches (drain = 'eu', project = 'prj_1'): rate 0.1",
        "  randomness  ce929d0e0e4736, the last 7 bytes of the trace id",
        f"  decision    dropped: the randomness is below the threshold {THRESHOLD}",
        "  weight      none: dropped spans are counted as sampled out",
        "  reason      rule 1: outside rate   (column SampleReason)",
    ]


def test_malformed_fields_of_the_trace_state_are_named() -> None:
    arguments = ("--tracestate", "ot=th:xyz;rv:1")

    assert "'th' and 'rv' of the trace state: malformed; counted as absent" in explain(*arguments).output
    assert json.loads(explain(*arguments, "--format", "json").output)["ignored"] == ["th", "rv"]


def test_missing_inputs_of_the_rules_are_named() -> None:
    missing = "rules also compare options that were not given: "

    assert f"{missing}--drain, --project, --environment, --service" in explain().output
    assert missing not in explain("--drain", "eu", "--project", "prj_1").output


def test_drain_option_is_optional_with_a_single_drain(config_file: Path) -> None:
    config_file.write_text(CONFIG.partition('[[drain]]\nname = "us"')[0])

    assert "1 of 2 matches" in explain("--project", "prj_1").output


def test_threshold_of_the_trace_state_and_its_weight_are_explained() -> None:
    result = explain("--tracestate", "ot=th:8;rv:ffffffffffffff", "--service", "web")

    assert "  randomness  ffffffffffffff, the rv of the trace state\n" in result.output
    assert (
        "  arrived     with threshold 80000000000000 (keeps 50 % of all traces) in its trace state\n"
        in result.output
    )
    assert "  weight      2: one stored span stands for 2\n" in result.output


def test_options_replace_the_configuration(config_file: Path) -> None:
    config_file.write_text("this is not TOML")

    by_rate = json.loads(explain("--mode", "proportional", "--rate", "0.25", "--format", "json").output)
    explanation = json.loads(explain("--mode", "hash_seed", "--percent", "25", "--format", "json").output)

    assert (by_rate["mode"], by_rate["rate"], by_rate["weight"]) == ("proportional", 0.25, 4)
    assert (explanation["mode"], explanation["rate"], explanation["weight"]) == ("hash_seed", 0.25, 4)
    assert (explanation["keep"], explanation["rule"], explanation["ignored"]) == (True, None, [])


def test_disabled_sampling_keeps_everything(config_file: Path) -> None:
    config_file.write_text("")

    assert "  decision    kept: sampling.mode is off\n" in explain().output


def test_unconfigured_drain_is_refused() -> None:
    result = explain("--drain", "asia")

    assert (result.exit_code, result.output) == (2, "trace-drain: --drain is 'asia'; expected eu or us\n")
