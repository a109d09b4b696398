"""The check of instructions per span: what it lets pass, and what it does not."""

from __future__ import annotations

import json

from benchmarks.core_instructions import KINDS, WRITTEN_DOWN, grown


def test_a_tenth_more_passes_and_anything_above_is_named() -> None:
    before = {"protobuf-commit": 1000, "json-commit": 2000}

    assert grown(before, {"protobuf-commit": 1100, "json-commit": 1500}) == []
    assert grown(before, {"protobuf-commit": 1101, "json-commit": 2200}) == [
        "protobuf-commit takes 1101 instructions a span; at most 10% above 1000 expected"
    ]


def test_every_kind_of_work_is_written_down() -> None:
    noted = json.loads(WRITTEN_DOWN.read_text())

    assert tuple(noted["instructions_per_span"]) == KINDS
