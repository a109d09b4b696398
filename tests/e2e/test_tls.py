"""`--tls-self-signed`: a client that trusts the generated certificate authority is served over HTTPS."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    with ReceiverProcess(tmp_path_factory.mktemp("secured"), "--tls-self-signed") as running:
        yield running


def ca_file(running: ReceiverProcess) -> Path:
    return running.data / "tls" / "ca.crt"


def test_self_signed_certificate_is_created_and_used(receiver: ReceiverProcess) -> None:
    trusted = ssl.create_default_context(cafile=str(ca_file(receiver)))
    request = urllib.request.Request(
        f"https://localhost:{receiver.address[1]}/v1/traces", b"{}", {"content-type": "application/json"}
    )

    with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
        response = answer.status, answer.read()

    assert response == (200, b"{}\n")


def test_load_command_trusts_the_given_authority_only(receiver: ReceiverProcess) -> None:
    url, options = (
        f"https://localhost:{receiver.address[1]}",
        ("--spans", "10", "--requests", "20", "--verify"),
    )

    output = receiver.command("load", url, *options, "--ca", str(ca_file(receiver)))
    with pytest.raises(AssertionError):
        receiver.command("load", url, *options, "--patience", "0.1")

    assert "200 spans acknowledged: 0 missing, 0 stored twice" in output
