"""Secrets and certificates are rotated under load: while old and new overlap, no request is refused."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import signal
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from tests.e2e.receiver_process import ReceiverProcess
from tests.faults.load import Load, assert_stored_once

AUTHORITY = trustme.CA()
ROTATIONS = 3


def write_certificate(directory: Path) -> None:
    """Replace certificate and key by new ones."""
    issued = AUTHORITY.issue_cert("localhost")
    for name, blob in (
        ("tls.crt", b"".join(pem.bytes() for pem in issued.cert_chain_pems)),
        ("tls.key", issued.private_key_pem.bytes()),
    ):
        (directory / f"{name}.new").write_bytes(blob)
        (directory / f"{name}.new").replace(directory / name)


def write_configuration(directory: Path, secrets: list[str]) -> None:
    """Configure a drain that requires a token and a signature, made with any of these secrets."""
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
    """A client that posts over TLS with the current secret and reuses its connections for a while."""

    def __init__(self, port: int, secret: str) -> None:
        self.secret = secret
        self.connection_errors: list[str] = []
        self._port = port
        self._trusted = ssl.create_default_context()
        AUTHORITY.configure_trust(self._trusted)
        self._per_thread = threading.local()
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
        except (OSError, http.client.HTTPException) as error:
            self.connection_errors.append(repr(error))
            self._per_thread.connection = None
            return 0
        return answer.status

    def _connection(self) -> http.client.HTTPSConnection:
        """Return the thread's connection; renew it every ten deliveries, to see new certificates."""
        self._per_thread.count = getattr(self._per_thread, "count", 0) + 1
        if self._per_thread.count % 10 == 1 or self._per_thread.connection is None:
            self._per_thread.connection = http.client.HTTPSConnection(
                "localhost", self._port, timeout=10, context=self._trusted
            )
            self._opened.append(self._per_thread.connection)
        connection: http.client.HTTPSConnection = self._per_thread.connection
        return connection


def reload_configuration(running: ReceiverProcess) -> None:
    """Send SIGHUP and wait until the configuration was reloaded."""
    assert running.process
    before = reloads(running)
    running.process.send_signal(signal.SIGHUP)
    running.wait_until(lambda: reloads(running) != before, "the configuration was not reloaded")


def reloads(running: ReceiverProcess) -> str:
    lines = running.metrics().splitlines()
    return next((line for line in lines if line.startswith('trace_drain_reloads_total{outcome="taken"}')), "")


@pytest.mark.fault(
    "secrets and the certificate are rotated under load: no request with the old or the new secret is refused"
)
@pytest.mark.timeout(180)
def test_no_delivery_fails_while_secrets_and_certificates_are_rotated(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    write_configuration(tmp_path, ["secret-0"])
    flags = ("--config", str(tmp_path / "trace-drain.toml"))
    with ReceiverProcess(tmp_path, *flags) as running:
        sender = Sender(running.address[1], "secret-0")
        with Load(sender) as senders:
            for number in range(1, ROTATIONS + 1):
                old, new = f"secret-{number - 1}", f"secret-{number}"
                senders.wait_for(20)
                write_configuration(tmp_path, [old, new])
                write_certificate(tmp_path)
                reload_configuration(running)
                senders.wait_for(20)
                sender.secret = new
                senders.wait_for(20)
                write_configuration(tmp_path, [new])
                reload_configuration(running)
            senders.wait_for(20)
        sender.secret = "secret-0"
        refused = sender(b"{}")
        sender.close()
        assert_stored_once(running, senders.acknowledged)

    assert sender.connection_errors == []
    assert set(senders.statuses) == {200}
    assert refused == 401
