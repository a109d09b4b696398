"""`trace-drain doctor`: why spans of a drain do not arrive."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from receiver.cli.shell.api_client import query_receiver
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import FILE_PATH, config_option, data_option, format_option, loaded_with
from receiver.doctor.local import local_steps
from receiver.doctor.probe import target_of
from receiver.doctor.remote import Doctor, drain_of
from receiver.doctor.sample import sample_of, sender_of
from receiver.doctor.step import Step
from receiver.errors import CommandFailed, OperatorError
from receiver.intake.credentials import SIGNATURE_ALGORITHMS
from receiver.printable import harmless_text
from receiver.refusals import RefusalReport
from receiver.settings import Settings
from receiver.supervisor.state import ReceiverState, running_receiver

MARKS = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "-"}


@click.command(
    epilog=examples(
        "trace-drain doctor --config trace-drain.toml",
        "trace-drain doctor https://traces.example/v1/traces --drain production",
        "trace-drain doctor https://traces.example/v1/traces --secret-file old-secret",
    )
)
@click.argument("url", required=False)
@config_option
@data_option
@click.option("--drain", metavar="NAME", help="Drain to check. [that of the URL's path]")
@click.option("--host", metavar="NAME", help="Without URL: the host name that senders use.")
@click.option("--ca", type=FILE_PATH, metavar="FILE", help="Also trust this authority.")
@click.option("--token-file", type=FILE_PATH, metavar="FILE", help="Token of the sender. [the drain's]")
@click.option("--secret-file", type=FILE_PATH, metavar="FILE", help="Secret of the sender. [the drain's]")
@click.option("--signature-header", metavar="NAME", help="Header of the sender. [the drain's]")
@click.option("--algorithm", type=click.Choice(SIGNATURE_ALGORITHMS), help="Of the sender. [the drain's]")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=10.0, metavar="S", help="Of each request. [10]"
)
@format_option
def doctor(url: str | None, config: str | None, data: str | None, **options: Any) -> None:  # noqa: ANN401 - checked by click
    """Find out why spans do not arrive at URL, or check this machine without URL.

    With URL: sends a signed sample as JSON and as protobuf, as the platform would, and follows it to its row.
    Samples are as old as the receiver accepts, so that no query of the last days counts them. Secrets are
    never printed. Exits with 1 if a step failed, with 2 if a setting or option is wrong.
    """
    loaded = loaded_with(config, data)
    state = running_receiver(loaded.settings)
    receiver = _Api(loaded.settings, state) if state else None
    if url is None:
        steps: Iterable[Step] = local_steps(loaded, state, receiver, options["host"])
    else:
        target = target_of(url, options["timeout"], options["ca"])
        drain = drain_of(loaded.settings, options["drain"], target.path)
        sender = sender_of(
            drain,
            token=_secret(options["token_file"]),
            secret=_secret(options["secret_file"]),
            signature_header=options["signature_header"],
            algorithm=options["algorithm"],
        )
        sample = sample_of(loaded.settings, drain)
        steps = Doctor(loaded.settings, drain, sender, target, sample, receiver).steps()
    _print(steps, options["form"])


def _print(steps: Iterable[Step], form: Literal["table", "json"]) -> None:
    """Print each step when it is done. Raises `CommandFailed` after the last if one failed."""
    failed = []
    for step in steps:
        if step.state == "failed":
            failed.append(step.step)
        if form == "json":
            click.echo(msgspec.json.encode(step))
            continue
        click.echo(f"{MARKS[step.state]} {step.step:<14} {step.ms:>7.0f} ms  {harmless_text(step.text)}")
        if step.fix:
            click.echo(f"{'':28}{harmless_text(step.fix)}")
    if failed:
        raise CommandFailed(f"failed: {', '.join(failed)}")


def _secret(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeError) as error:
        raise OperatorError(f"'{file}' cannot be read; expected a file with a secret") from error


class _Api:
    """The API of a running receiver. Implements `receiver.doctor.remote.Receiver`."""

    def __init__(self, settings: Settings, state: ReceiverState) -> None:
        self._settings, self._state = settings, state

    def spans(self, trace_id: str) -> list[dict[str, Any]]:
        return list(query_receiver(self._settings, self._state, f"/api/v1/traces/{trace_id}", {}))

    def refusals(self) -> list[dict[str, Any]]:
        newest: list[dict[str, Any]] = self._document("/api/v1/refusals", RefusalReport)["newest"]
        return newest

    def health(self) -> dict[str, str]:
        checks: dict[str, str] = self._document("/api/v1/health", dict)["checks"]
        return checks

    def _document(self, path: str, document: type) -> dict[str, Any]:
        [row] = query_receiver(self._settings, self._state, path, {}, document=document)
        return row
