"""The load harness against the receiver itself: what was acknowledged is stored, once and to the letter."""

from __future__ import annotations

import json

import pytest

from tests.e2e.running import Running


@pytest.mark.parametrize(
    "form", [(), ("--encoding", "json", "--compression", "gzip")], ids=["protobuf", "json, gzip"]
)
def test_what_was_acknowledged_is_kept(receiver: Running, form: tuple[str, ...]) -> None:
    url = str(receiver.state()["urls"]["listen"])

    said = receiver.command(
        "load", url, "--spans", "40", "--requests", "40", "--verify", "--format", "json", *form
    )

    verified = json.loads(said)["verified"]
    assert verified["ok"], verified["examples"]
    assert verified["spans"] == 1_600
    assert verified["compared"] == 400
