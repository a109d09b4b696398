"""Secrets and certificates are replaced under load: while old and new overlap, nobody is refused."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import signal
import ssl
import threading
import time
from pathlib import Path

import pytest
import trustme

from tests.e2e.running import Running
from tests.faults.load import Load, assert_stored_once

AUTHORITY = trustme.CA()
ROTATIONS = 3
PATIENCE_S = 30.0


def certify(directory: Path) -> None:
    """Put a new certificate in the place of the one that is there, the key too."""
    issued = AUTHORITY.issue_cert("localhost")
    for name, blob in (
        ("tls.crt", b"".join(one.bytes() for one in issued.cert_chain_pems)),
        ("tls.key", issued.private_key_pem.bytes()),
    ):
        (directory / f"{name}.new").write_bytes(blob)
        (directory / f"{name}.new").replace(directory / name)


def configure(directory: Path, secrets: list[str]) -> None:
    """A drain that wants a token and a signature; both may be made with any of these secrets."""
    names = []
    for secret in secrets:
        file = directory / f"secret-{secret}"
        file.write_text(secret)
        file.chmod(0o600)
        names.append(f'"{file}"')
    listed = ", ".join(names)
    (directory / "trace-drain.toml").write_text(
        f'[tls]\ncert_file = "{directory / "tls.crt"}"\nkey_file = "{directory / "tls.key"}"\n'
        f'[[drain]]\nname = "rotating"\ntoken_files = [{listed}]\n'
        f'signature_header = "x-signature"\nsignature_secret_files = [{listed}]\n'
    )


class Sender:
    """Posts over TLS, signed with the secret of the day, on connections that are kept for a while."""

    def __init__(self, port: int, secret: str) -> None:
        self.secret = secret
        self.broken: list[str] = []
        self._port = port
        self._trusted = ssl.create_default_context()
        AUTHORITY.configure_trust(self._trusted)
        self._mine = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    def __call__(self, body: bytes) -> int:
        secret = self.secret
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {secret}",
            "x-signature": hmac.new(secret.encode(), body, hashlib.sha1).hexdigest(),
        }
        try:
            connection = self._connection()
            connection.request("POST", "/v1/traces", body, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as reason:
            self.broken.append(repr(reason))
            self._mine.connection = None
            return 0
        return answer.status

    def _connection(self) -> http.client.HTTPSConnection:
        """Every tenth delivery on a new one: it is shown the certificate of now."""
        self._mine.count = getattr(self._mine, "count", 0) + 1
        if self._mine.count % 10 == 1 or self._mine.connection is None:
            self._mine.connection = http.client.HTTPSConnection(
                "localhost", self._port, timeout=10, context=self._trusted
            )
            self._opened.append(self._mine.connection)
        found: http.client.HTTPSConnection = self._mine.connection
        return found


def reload(running: Running) -> None:
    """SIGHUP, and wait until it was heard."""
    assert running.process
    before = reloads(running)
    running.process.send_signal(signal.SIGHUP)
    deadline_s = time.monotonic() + PATIENCE_S
    while reloads(running) == before:
        assert time.monotonic() < deadline_s, "not reloaded"
        time.sleep(0.05)


def reloads(running: Running) -> str:
    lines = running.metrics().splitlines()
    return next((line for line in lines if line.startswith('trace_drain_reloads_total{outcome="taken"}')), "")


@pytest.mark.fault(
    "secrets and certificate are rotated under load: nobody with the old or the new is refused"
)
@pytest.mark.timeout(180)
def test_no_delivery_fails_while_secrets_and_certificates_are_rotated(tmp_path: Path) -> None:
    certify(tmp_path)
    configure(tmp_path, ["secret-0"])
    flags = ("--config", str(tmp_path / "trace-drain.toml"))
    with Running(tmp_path, *flags) as running:
        sender = Sender(running.address[1], "secret-0")
        with Load(sender) as senders:
            for number in range(1, ROTATIONS + 1):
                old, new = f"secret-{number - 1}", f"secret-{number}"
                senders.wait_for(20)
                configure(tmp_path, [old, new])
                certify(tmp_path)
                reload(running)
                senders.wait_for(20)
                sender.secret = new
                senders.wait_for(20)
                configure(tmp_path, [new])
                reload(running)
            senders.wait_for(20)
        sender.secret = "secret-0"
        refused = sender(b"{}")
        sender.close()
        assert_stored_once(running, senders)

    assert sender.broken == []
    assert set(senders.statuses) == {200}
    assert refused == 401
