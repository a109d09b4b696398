"""Tests of the check of instructions per span."""

from __future__ import annotations

import json

from benchmarks.core_instructions import BASELINE, KINDS, regression_messages


def test_increase_above_ten_percent_is_reported_as_regression() -> None:
    before = {"protobuf-commit": 1000, "json-commit": 2000}

    assert regression_messages(before, {"protobuf-commit": 1100, "json-commit": 1500}) == []
    assert regression_messages(before, {"protobuf-commit": 1101, "json-commit": 2200}) == [
        "protobuf-commit takes 1101 instructions per span; expected at most 10% above 1000"
    ]


def test_baseline_contains_every_kind_of_work() -> None:
    baseline = json.loads(BASELINE.read_text())

    assert tuple(baseline["instructions_per_span"]) == KINDS
