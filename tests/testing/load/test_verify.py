"""Tests of `load --verify`: it detects acknowledged spans that are missing, duplicated or altered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from receiver.cli import main
from tests.doubles.defective_receiver import listening

LOAD_OPTIONS = ("--spans", "40", "--connections", "4", "--requests", "30")


def verified(
    *script: str, defect: str = "", rejected: int = 0, options: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    with listening(*script, defect=defect, rejected=rejected) as server:
        command = ["load", server.url, *LOAD_OPTIONS, "--verify", "--api", server.url, "--settle", "0.01"]
        result = CliRunner().invoke(main, [*command, "--format", "json", *options])
    findings: dict[str, Any] = json.loads(result.stdout)["verified"]
    return result.exit_code, findings


@pytest.mark.parametrize("options", [(), ("--compression", "gzip")], ids=["plain", "gzip"])
def test_correct_receiver_passes(options: tuple[str, ...]) -> None:
    exit_code, findings = verified(options=options)

    assert exit_code == 0
    assert findings["ok"]
    assert findings["spans"] == 1_200
    assert findings["compared"] == 300
    assert findings["missing"] == findings["twice"] == findings["wrong"] == 0


@pytest.mark.parametrize(
    ("defect", "finding", "count"),
    [
        pytest.param("forgets", "missing", 1_200, id="acknowledges and stores nothing"),
        pytest.param("drops", "missing", 30, id="a span of each request is missing"),
        pytest.param("doubles", "twice", 30, id="a span of each request is stored twice"),
        pytest.param("renames", "wrong", 300, id="a different name is stored"),
    ],
)
def test_incorrect_receiver_is_detected(defect: str, finding: str, count: int) -> None:
    exit_code, findings = verified(defect=defect)

    assert exit_code == 1
    assert not findings["ok"]
    assert findings[finding] == count
    assert findings["examples"][0].endswith("differs in SpanName") == (defect == "renames")


def test_verification_waits_for_a_trace_that_is_readable_later_than_its_count() -> None:
    exit_code, findings = verified(defect="late", options=("--settle", "60"))

    assert (exit_code, findings["wrong"]) == (0, 0)


def test_refused_requests_are_not_expected_in_the_store() -> None:
    exit_code, findings = verified("400", "400")

    assert exit_code == 1, "two requests were refused"
    assert findings["ok"]
    assert findings["spans"] == 28 * 40


def test_rejected_spans_are_not_expected_in_the_store() -> None:
    _, findings = verified(rejected=1, defect="drops")

    assert findings["spans"] == 30 * 39
    assert findings["missing"] == 0
