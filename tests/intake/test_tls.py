"""Tests of TLS: versions, ALPN, idle handshakes, client certificates, and reloaded certificates."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path

import pytest
import trustme

from receiver.errors import OperatorError
from receiver.intake.connections import tls
from receiver.intake.connections.tls import Certificates
from receiver.settings import Limits, Tls
from receiver.supervisor.certificate import LastGood
from tests.support.intake import Intake, on_uvloop, request, running
from tests.support.tls import AUTHORITY, certificates_in, client_context, client_hello, write_certificates


async def serial(intake: Intake) -> str:
    """Return the serial number of the server certificate of a new connection."""
    connection = await intake.connect()
    number: str = connection.writer.get_extra_info("peercert")["serialNumber"]
    await connection.close()
    return number


@on_uvloop
async def test_delivery_over_tls_is_accepted_and_only_http_1_1_is_offered(tmp_path: Path) -> None:
    context = client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    certificates = certificates_in(tmp_path)
    async with running(tls=(certificates.context, context)) as intake:
        connection = await intake.connect()
        oldest = certificates.context.minimum_version
        options = certificates.context.options
        chosen = connection.writer.get_extra_info("ssl_object").selected_alpn_protocol()
        answer = await connection.exchange(request())

    assert (answer.status, chosen, oldest) == (200, "http/1.1", ssl.TLSVersion.TLSv1_2)
    assert options & ssl.OP_NO_RENEGOTIATION
    assert options & ssl.OP_NO_COMPRESSION


HALF_OPEN = 200


@pytest.mark.fault("clients begin TLS handshakes and never complete them")
@on_uvloop
async def test_half_open_handshakes_do_not_delay_a_delivery_and_are_closed_by_the_timeout(
    tmp_path: Path,
) -> None:
    part = client_hello()[:-1]
    # Longer than the flood takes to connect on a busy machine.
    limits = Limits(tls_handshake_timeout_s=5)
    async with running(tls=(certificates_in(tmp_path).context, client_context()), limits=limits) as intake:
        half_open = [await asyncio.open_connection("127.0.0.1", intake.port) for _ in range(HALF_OPEN)]
        for _, writer in half_open:
            writer.write(part)
        answers = [await intake.post() for _ in range(3)]
        open_during_the_deliveries = intake.server.connection_count
        received = await asyncio.gather(*(reader.read() for reader, _ in half_open))
        after_the_timeout = await intake.post()
        for _, writer in half_open:
            writer.close()

    assert [answer.status for answer in (*answers, after_the_timeout)] == [200] * 4
    assert open_during_the_deliveries >= HALF_OPEN
    assert received == [b""] * HALF_OPEN


@on_uvloop
async def test_changed_certificate_applies_to_new_connections_only(tmp_path: Path) -> None:
    certificates = certificates_in(tmp_path)
    async with running(tls=(certificates.context, client_context())) as intake:
        old = await serial(intake)
        kept = await intake.connect()
        write_certificates(tmp_path)
        certificates.reload_if_changed()
        new = await serial(intake)
        answer = await kept.exchange(request())

    assert old != new
    assert answer.status == 200


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
@on_uvloop
async def test_invalid_certificate_is_ignored_until_it_is_repaired(tmp_path: Path, broken: str) -> None:
    warnings: list[str] = []
    certificates = Certificates(write_certificates(tmp_path), warnings.append)
    async with running(tls=(certificates.context, client_context())) as intake:
        old = await serial(intake)
        (tmp_path / broken).write_text("not a certificate")
        certificates.reload_if_changed()
        certificates.reload_if_changed()
        unchanged = await serial(intake)
        trouble = certificates.trouble
        write_certificates(tmp_path)
        certificates.reload_if_changed()
        new = await serial(intake)

    assert old == unchanged != new
    assert warnings == [trouble]
    assert "expected a PEM chain" in trouble
    assert certificates.trouble == ""


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key", "ca.crt"])
@on_uvloop
async def test_start_with_invalid_files_uses_the_last_good_files_until_repaired(
    tmp_path: Path, broken: str
) -> None:
    with_certificate = client_context()
    AUTHORITY.issue_cert("sender").configure_cert(with_certificate)
    files = write_certificates(tmp_path, client_ca=True)
    last_good = LastGood(files)
    (tmp_path / broken).write_text("not a certificate")
    last_good.refresh(files)
    certificates = Certificates(files, lambda _warning: None, last_good.pems)
    trouble = certificates.trouble
    async with running(tls=(certificates.context, with_certificate)) as intake:
        old = await serial(intake)
        intake.tls = client_context()
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await intake.post()
        intake.tls = with_certificate
        write_certificates(tmp_path, client_ca=True)
        certificates.reload_if_changed()
        new = await serial(intake)

    assert "expected a PEM chain" in trouble
    assert (certificates.trouble, old != new) == ("", True)


def test_last_good_certificate_is_the_newest_that_could_be_loaded(tmp_path: Path) -> None:
    last_good = LastGood(write_certificates(tmp_path))
    first = last_good.pems
    files = write_certificates(tmp_path)
    last_good.refresh(files)
    second = last_good.pems
    (tmp_path / "tls.key").unlink()
    last_good.refresh(files)

    assert first != second
    assert last_good.pems == second
    assert second is not None
    assert second.cert == (tmp_path / "tls.crt").read_bytes()
    assert "PRIVATE" not in repr(second)


def test_reload_uses_other_certificate_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    certificates = certificates_in(tmp_path / "a")
    certificates.reload(write_certificates(tmp_path / "b"))

    (tmp_path / "b" / "tls.key").write_text("")
    certificates.reload_if_changed()

    assert "b/tls.key" in certificates.trouble


@on_uvloop
async def test_new_client_ca_applies_after_the_reload(tmp_path: Path) -> None:
    other, with_certificate, untrusted = trustme.CA(), client_context(), client_context()
    AUTHORITY.issue_cert("sender").configure_cert(with_certificate)
    other.issue_cert("untrusted").configure_cert(untrusted)
    certificates = certificates_in(tmp_path, client_ca=True)
    async with running(tls=(certificates.context, with_certificate)) as intake:
        before = await intake.post()
        (tmp_path / "ca.crt").write_bytes(other.cert_pem.bytes())
        certificates.reload_if_changed()
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await intake.post()
        intake.tls = untrusted
        after = await intake.post()

    assert (before.status, after.status) == (200, 200)


@pytest.mark.parametrize("required_at_start", [True, False])
@on_uvloop
async def test_reload_does_not_change_whether_clients_need_a_certificate(
    tmp_path: Path, *, required_at_start: bool
) -> None:
    certificates = certificates_in(tmp_path, client_ca=required_at_start)
    async with running(tls=(certificates.context, client_context())) as intake:
        certificates.reload(write_certificates(tmp_path, client_ca=not required_at_start))
        try:
            status = (await intake.post()).status
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            status = 0

    assert status == (0 if required_at_start else 200)
    assert "restart the receiver" in certificates.trouble


@pytest.mark.parametrize(
    "trouble",
    [
        ssl.SSLError("key values mismatch"),
        FileNotFoundError(2, "No such file or directory"),
        ValueError("no certificate"),
        KeyError("x"),
    ],
)
def test_files_that_change_while_they_are_loaded_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def raising(_: Tls) -> float:
        raise trouble

    warnings: list[str] = []
    certificates = Certificates(write_certificates(tmp_path), warnings.append)
    with monkeypatch.context() as patched:
        patched.setattr(tls, "expires_at_s", raising)
        write_certificates(tmp_path)
        certificates.reload_if_changed()
    reported = certificates.trouble
    certificates.reload_if_changed()

    assert warnings == [reported] != [""]
    assert certificates.trouble == ""


def test_error_names_a_missing_certificate_file(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"missing\.crt"):
        Certificates(Tls(cert_file=str(tmp_path / "missing.crt"), key_file=""), lambda _warning: None)


@pytest.mark.parametrize(
    ("left_days", "warning"),
    [(15, ""), (13, "expires in 13 days"), (0, "not valid now"), (-1, "not valid now")],
)
def test_certificate_that_expires_soon_has_a_warning(left_days: int, warning: str) -> None:
    reason = tls.expiry_warning(left_days * tls.DAY_S)

    assert warning in reason
    assert bool(warning) == bool(reason)


def test_expiry_of_the_certificate_is_read(tmp_path: Path) -> None:
    certificates = certificates_in(tmp_path)

    assert certificates.expires_at_s > time.time() + 86_400
