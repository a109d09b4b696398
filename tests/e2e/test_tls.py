"""`--tls-self-signed`: one flag, and an exporter that trusts the authority is served over HTTPS."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running import Running


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("secured"), "--tls-self-signed") as running:
        yield running


def authority(running: Running) -> Path:
    return running.data / "tls" / "ca.crt"


def test_a_self_signed_certificate_is_made_and_used(secured: Running) -> None:
    trusted = ssl.create_default_context(cafile=str(authority(secured)))
    request = urllib.request.Request(
        f"https://localhost:{secured.address[1]}/v1/traces", b"{}", {"content-type": "application/json"}
    )

    with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
        found = answer.status, answer.read()

    assert found == (200, b"{}")


def test_the_load_harness_speaks_tls_with_whom_it_trusts(secured: Running) -> None:
    url, sent = f"https://localhost:{secured.address[1]}", ("--spans", "10", "--requests", "20", "--verify")

    trusting = secured.command("load", url, *sent, "--ca", str(authority(secured)))
    with pytest.raises(AssertionError):
        secured.command("load", url, *sent, "--patience", "0.1")

    assert "200 spans acknowledged: 0 missing, 0 stored twice" in trusting
