"""`trace-drain load` against a real receiver: every acknowledged span is stored once and unchanged."""

from __future__ import annotations

import json

import pytest

from tests.e2e.receiver_process import ReceiverProcess


@pytest.mark.parametrize(
    "options", [(), ("--encoding", "json", "--compression", "gzip")], ids=["protobuf", "json, gzip"]
)
def test_load_verifies_that_every_span_is_stored(receiver: ReceiverProcess, options: tuple[str, ...]) -> None:
    url = str(receiver.state()["urls"]["listen"])

    output = receiver.command(
        "load", url, "--spans", "40", "--requests", "40", "--verify", "--format", "json", *options
    )

    verified = json.loads(output)["verified"]
    assert verified["ok"], verified["examples"]
    assert verified["spans"] == 1_600
    assert verified["compared"] == 400
