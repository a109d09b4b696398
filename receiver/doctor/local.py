"""Checks of this machine: those of `config check`, its limits, and what the receiver itself reports."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cryptography import x509

from receiver.config.checks import require_place
from receiver.config.load import Loaded
from receiver.doctor import machine
from receiver.doctor.remote import Receiver
from receiver.doctor.step import Step, StepFailed, StepWarning, run
from receiver.errors import OperatorError
from receiver.intake.connections.load_shedding import held_max
from receiver.intake.run import DESCRIPTORS_RESERVED
from receiver.reports import Finding
from receiver.settings import Settings
from receiver.sizes import counted, duration_text, size_text
from receiver.supervisor.state import ReceiverState

RATE_S = 1.0
"""Time over which the growth of the journal is measured."""
SHOWN_MAX = 3


def local_steps(
    loaded: Loaded, state: ReceiverState | None, receiver: Receiver | None, host: str | None
) -> Iterator[Step]:
    """Yield each step. They do not depend on each other."""
    settings = loaded.settings
    checks: list[tuple[str, Callable[[], str]]] = [
        ("settings", lambda: _settings(loaded)),
        ("certificate", lambda: _certificate(settings, host)),
        ("ports", lambda: _of(machine.ports(settings)) or "all of them are free"),
        ("data directory", lambda: _data_directory(settings)),
        ("disk", lambda: _of(machine.disk(settings)) or "more space is free than journal.disk_free_min"),
        ("journal", lambda: _journal(settings)),
        ("descriptors", lambda: _descriptors(settings, state)),
        ("store", lambda: _of(machine.server_findings(settings))),
        ("receiver", lambda: _receiver(receiver)),
        ("refusals", lambda: _refusals(receiver)),
    ]
    for check in checks:
        yield from run([check])


def _of(findings: Iterable[Finding]) -> str:
    """Return the notes of a check; raise its problems, else its warnings."""
    found = list(findings)
    for level, failure in (("problem", StepFailed), ("warning", StepWarning)):
        if texts := [finding.text for finding in found if finding.level == level]:
            raise failure("; ".join(texts), "Correct what the text says was expected.")
    return "; ".join(finding.text for finding in found)


def _settings(loaded: Loaded) -> str:
    key_file = loaded.settings.tls.key_file
    warnings = list(loaded.warnings)
    if key_file and Path(key_file).stat().st_mode & 0o007:
        warnings.append(f"tls.key_file '{key_file}' is accessible for everyone; expected mode 0600 or 0640")
    return _of(Finding("warning", text) for text in warnings) or "valid; files with secrets are not public"


def _certificate(settings: Settings, host: str | None) -> str:
    found = machine.certificates_in(settings.tls.cert_file)
    if not found:
        return "generated" if settings.tls.self_signed else "none: the receiver speaks plain HTTP"
    text = _of(machine.certificates(settings.tls))
    names = _names(found[0])
    if host is not None and not any(_covers(name, host.lower()) for name in names):
        raise StepFailed(
            f"tls.cert_file is for {', '.join(names) or 'no name'}, not for '{host}'",
            "Issue a certificate for the host name that senders use.",
        )
    return text or f"for {', '.join(names[:SHOWN_MAX])}; valid until {found[0].not_valid_after_utc:%F}"


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value).lower() for name in names]


def _covers(name: str, host: str) -> bool:
    return name == host or (name.startswith("*.") and name[1:] == f".{host.partition('.')[2]}")


def _data_directory(settings: Settings) -> str:
    try:
        require_place(settings)
    except OperatorError as error:
        raise StepFailed(str(error), "Give the user of the receiver the directory (chown).") from error
    path = Path(settings.data_dir)
    if path.is_dir() and path.stat().st_mode & 0o022:
        raise StepFailed(
            f"other users may write to data_dir '{settings.data_dir}'",
            "Remove their right to write (chmod go-w).",
        )
    return settings.data_dir


def _journal(settings: Settings) -> str:
    """Check that the disk has space for the journal's ceiling, and when the journal is full at this rate."""
    limits, directory = settings.journal, Path(settings.data_dir) / "journal"
    existing = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    used, free = _size(directory), shutil.disk_usage(existing).free
    missing = limits.bytes_max - used + limits.disk_free_min - free
    if missing > 0:
        raise StepFailed(
            f"the disk has {size_text(free)} free; the journal may need {size_text(missing)} more",
            "Lower journal.bytes_max, or free the disk: senders get 503 when it is full.",
        )
    began_s = time.monotonic()
    time.sleep(RATE_S)
    rate = (_size(directory) - used) / (time.monotonic() - began_s)
    room = f"{size_text(used)} of {size_text(limits.bytes_max)}"
    if rate <= 0:
        return f"{room}; it does not grow"
    return f"{room}; full in {duration_text((limits.bytes_max - used) / rate * 1e9)} at the present rate"


def _size(directory: Path) -> int:
    total = 0
    for file in directory.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue  # the writer deletes segments meanwhile
    return total


def _descriptors(settings: Settings, state: ReceiverState | None) -> str:
    connections_max = settings.limits.connections_max
    needed = connections_max + held_max(connections_max) + DESCRIPTORS_RESERVED
    # Of the process that runs: a service manager may limit it otherwise than this shell.
    pid = state.pids.intake[0] if state else 0
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise StepFailed(
            f"{hard} files may be open; limits.connections_max = {connections_max} needs {needed}",
            "Raise LimitNOFILE of the service, or lower limits.connections_max.",
        )
    return f"{needed} files may be open"


def _receiver(receiver: Receiver | None) -> str:
    if receiver is None:
        raise StepWarning("no receiver runs on the data directory", "Start it with `trace-drain serve`.")
    problems = [f"{name}: {reason}" for name, reason in receiver.health().items() if reason]
    if problems:
        raise StepFailed("; ".join(problems), "See /readyz?verbose of the admin port, and the log.")
    return "all its checks pass"


def _refusals(receiver: Receiver | None) -> str:
    if receiver is None:
        return "not known"
    newest = receiver.refusals()
    if not newest:
        return "no request was refused since the start"
    first = newest[0]
    where = f"{first['peer']} {first['path']}".strip()
    raise StepWarning(
        f"{counted(sum(each['count'] for each in newest), 'refused request')} since the start; the last from "
        f"{where or 'an unknown peer'}: {first['error'] or first['reason']}",
        first["remedy"],
    )
