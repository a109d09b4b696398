"""Claims about `trace-drain sampling explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main

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
    """The configuration of the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trace-drain.toml"
    path.write_text(CONFIG)
    return path


def explain(*words: str, trace: str = TRACE) -> Result:
    return CliRunner().invoke(main, ["sampling", "explain", trace, *words])


@pytest.mark.parametrize(
    ("words", "rule", "rate", "keep"),
    [
        pytest.param("", None, 0.5, True, id="no rule"),
        pytest.param("--drain eu --project prj_1", 1, 0.1, False, id="first rule"),
        pytest.param("--drain us --project prj_1", None, 0.5, True, id="another drain"),
        pytest.param("--service web --environment production", 2, 0, False, id="second rule"),
        pytest.param("--service web", None, 0.5, True, id="half of the second rule"),
        pytest.param("--drain eu --project prj_1 --service web", 1, 0.1, False, id="both rules"),
    ],
)
def test_the_first_rule_of_the_configuration_that_matches_decides(
    words: str,
    rule: int | None,
    rate: float,
    keep: bool,  # noqa: FBT001 - a row of the table
) -> None:
    shown = json.loads(explain(*words.split(), "--format", "json").output)

    assert (shown["rule"] and shown["rule"]["number"], shown["rate"], shown["keep"]) == (rule, rate, keep)


def test_the_text_explains_each_step() -> None:
    assert explain("--drain", "eu", "--project", "prj_1").output.splitlines() == [
        f"spans of trace {TRACE} are dropped",
        "  mode        equalizing",
        "  rule        1 of 2 matches (drain = 'eu', project = 'prj_1'): rate 0.1",
        "  randomness  ce929d0e0e4736, the last 7 bytes of the trace id",
        f"  decision    dropped: the randomness is below the threshold {THRESHOLD}",
        "  weight      none: dropped spans are counted as sampled out",
        "  reason      rule 1: outside rate   (column SampleReason)",
    ]


def test_what_rules_look_at_and_was_not_given_is_named() -> None:
    missing = "rules also look at what was not given here: "

    assert f"{missing}--drain, --project, --environment, --service" in explain().output
    assert missing not in explain("--drain", "eu", "--project", "prj_1").output


def test_the_only_drain_need_not_be_named(config_file: Path) -> None:
    config_file.write_text(CONFIG.partition('[[drain]]\nname = "us"')[0])

    assert "1 of 2 matches" in explain("--project", "prj_1").output


def test_the_arriving_threshold_and_its_weight_are_explained() -> None:
    done = explain("--tracestate", "ot=th:8;rv:ffffffffffffff", "--service", "web")

    assert "  randomness  ffffffffffffff, the rv of the trace state\n" in done.output
    assert (
        "  arrived     with threshold 80000000000000 (keeps 50 % of all traces) in its trace state\n"
        in done.output
    )
    assert "  weight      2: one stored span stands for 2\n" in done.output


def test_options_replace_the_configuration(config_file: Path) -> None:
    config_file.write_text("this is not TOML")

    shown = json.loads(explain("--mode", "proportional", "--rate", "0.25", "--format", "json").output)

    assert (shown["mode"], shown["rate"], shown["weight"]) == ("proportional", 0.25, 4)


def test_sampling_that_is_off_keeps_everything(config_file: Path) -> None:
    config_file.write_text("")

    assert "  decision    kept: sampling.mode is off\n" in explain().output


def test_a_drain_that_is_not_configured_is_refused() -> None:
    done = explain("--drain", "asia")

    assert (done.exit_code, done.output) == (2, "trace-drain: --drain is 'asia'; expected eu or us\n")
