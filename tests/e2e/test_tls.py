"""`--tls-self-signed`: one flag, and an exporter that trusts the certificate is served over HTTPS."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.running import Running


def test_a_self_signed_certificate_is_made_and_used(fresh_dir: Path) -> None:
    with Running(fresh_dir, "--tls-self-signed") as running:
        trusted = ssl.create_default_context(cafile=str(fresh_dir / "tls" / "cert.pem"))
        port = running.address[1]
        request = urllib.request.Request(
            f"https://localhost:{port}/v1/traces", b"{}", {"content-type": "application/json"}
        )

        with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
            found = answer.status, answer.read()

    assert found == (200, b"{}")


def test_the_load_harness_trusts_what_it_is_told_to(fresh_dir: Path) -> None:
    with Running(fresh_dir, "--tls-self-signed") as running:
        url = f"https://localhost:{running.address[1]}"
        sent = ("--spans", "10", "--requests", "20", "--verify")
        trusted = running.command("load", url, *sent, "--ca", str(fresh_dir / "tls" / "cert.pem"))
        with pytest.raises(AssertionError):
            running.command("load", url, *sent, "--patience", "0.1")

    assert "200 spans acknowledged: 0 missing, 0 stored twice" in trusted
