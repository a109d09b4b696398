"""A false claim is shown to be one: the load harness finds what was acknowledged and not kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from receiver.cli import main
from tests.doubles.liar import listening

SENT = ("--spans", "40", "--connections", "4", "--requests", "30")


def verified(
    *script: str, lie: str = "", rejected: int = 0, words: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    with listening(*script, lie=lie, rejected=rejected) as server:
        command = ["load", server.url, *SENT, "--verify", "--api", server.url, "--settle", "0.01"]
        result = CliRunner().invoke(main, [*command, "--format", "json", *words])
    findings: dict[str, Any] = json.loads(result.stdout)["verified"]
    return result.exit_code, findings


@pytest.mark.parametrize("words", [(), ("--compression", "gzip")], ids=["plain", "gzip"])
def test_an_honest_receiver_passes(words: tuple[str, ...]) -> None:
    exit_code, findings = verified(words=words)

    assert exit_code == 0
    assert findings["ok"]
    assert findings["spans"] == 1_200
    assert findings["compared"] == 300
    assert findings["missing"] == findings["twice"] == findings["wrong"] == 0


@pytest.mark.parametrize(
    ("lie", "what", "count"),
    [
        pytest.param("forgets", "missing", 1_200, id="acknowledges and stores nothing"),
        pytest.param("drops", "missing", 30, id="one span of each request is missing"),
        pytest.param("doubles", "twice", 30, id="one span of each request is there twice"),
        pytest.param("renames", "wrong", 300, id="another name is stored"),
    ],
)
def test_a_liar_is_found_out(lie: str, what: str, count: int) -> None:
    exit_code, findings = verified(lie=lie)

    assert exit_code == 1
    assert not findings["ok"]
    assert findings[what] == count
    assert findings["examples"]


def test_the_wrong_column_is_named() -> None:
    _, findings = verified(lie="renames")

    assert findings["examples"][0].endswith("differs in SpanName")


def test_what_was_never_acknowledged_may_be_missing() -> None:
    exit_code, findings = verified("400", "400")

    assert exit_code == 1, "two requests were refused"
    assert findings["ok"]
    assert findings["spans"] == 28 * 40


def test_rejected_spans_are_not_expected() -> None:
    _, findings = verified(rejected=1, lie="drops")

    assert findings["spans"] == 30 * 39
    assert findings["missing"] == 0
