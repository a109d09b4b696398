"""Checks of `config check` and `doctor` beyond the settings: certificates, ports and disk of this machine.

Never: listens on a port, or changes the disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509

from receiver import transcode
from receiver.config.addresses import listen_addresses, parse_address, parse_store_url
from receiver.engine.connection_check import inspect_server
from receiver.errors import OperatorError
from receiver.reports import Finding
from receiver.settings import CERTIFICATE_DAYS_MIN, Settings, Tls
from receiver.sizes import size_text
from receiver.supervisor.sockets import NAME_OF, require_free
from receiver.supervisor.state import ReceiverState, running_receiver

Level = Literal["problem", "warning"]


def inspect_machine(settings: Settings) -> Iterator[Finding]:
    """Yield everything that prevents `serve` from working with these settings on this machine."""
    yield from certificates(settings.tls)
    yield from ports(settings)
    yield from disk(settings)


def certificates(tls: Tls) -> Iterator[Finding]:
    """Check the validity period of each certificate."""
    levels: dict[str, Level] = {"cert_file": "problem", "client_ca_file": "warning"}
    for name, level in levels.items():
        file = getattr(tls, name)
        for index, certificate in enumerate(certificates_in(file)):
            which = f"certificate {index + 1} of tls.{name} '{file}'" if index else f"tls.{name} '{file}'"
            yield from _validity(which, certificate, level)


def certificates_in(file: str) -> list[x509.Certificate]:
    """Return the certificates of a file, which the check of the settings has already loaded with OpenSSL."""
    try:
        return x509.load_pem_x509_certificates(Path(file).read_bytes()) if file else []
    except ValueError:
        return []


def _validity(which: str, certificate: x509.Certificate, level: Level) -> Iterator[Finding]:
    now, begins, ends = datetime.now(UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        yield Finding(level, f"{which} expired on {ends:%Y-%m-%d %H:%M} UTC; expected a renewed certificate")
    elif now < begins:
        yield Finding(
            level, f"{which} is not valid before {begins:%Y-%m-%d %H:%M} UTC; the clock shows {now:%F %R}"
        )
    elif ends - now < timedelta(days=CERTIFICATE_DAYS_MIN):
        yield Finding("warning", f"{which} expires on {ends:%Y-%m-%d %H:%M} UTC, in {(ends - now).days} days")


def ports(settings: Settings) -> Iterator[Finding]:
    """Check that every address can be bound, or is in use by the receiver of this data directory."""
    running = running_receiver(settings)
    for key, listen in listen_addresses(settings).items():
        try:
            require_free(key, listen)
        except OperatorError as error:
            # Checking a configuration beside a running receiver is the usual case, so its own ports are no
            # problem.
            if running and _is_port_of(running, key, listen):
                owner = f"the receiver that runs on this data directory (process {running.pids.supervisor})"
                yield Finding("note", f"{key} = '{listen}' is in use by {owner}")
            else:
                yield Finding("problem", str(error))


def _is_port_of(running: ReceiverState, key: str, listen: str) -> bool:
    bound = getattr(running, NAME_OF[key])
    return bool(bound) and parse_address(bound).port == parse_address(listen).port


def disk(settings: Settings) -> Iterator[Finding]:
    """Check that the disk has as much free space as the receiver needs to accept deliveries."""
    data = Path(settings.data_dir).absolute()
    # The directory may not exist yet, and a check does not create it.
    existing = next(path for path in (data, *data.parents) if path.is_dir())
    free_bytes, free_bytes_min = shutil.disk_usage(existing).free, settings.journal.disk_free_min
    if free_bytes < free_bytes_min:
        yield Finding(
            "problem",
            f"the disk under data_dir '{settings.data_dir}' has {size_text(free_bytes)} free; expected at "
            f"least journal.disk_free_min = {size_text(free_bytes_min)}: below it senders are answered 503",
        )


def server_findings(settings: Settings) -> Iterator[Finding]:
    """Check version, user, rights and tables of the ClickHouse server."""
    url = parse_store_url(settings.store.url)
    if url is None:
        yield Finding("note", "the store is embedded: there is no server to connect to")
        return
    yield from inspect_server(settings, url, transcode.SCHEMAS)
