"""`trace-drain store backup | restore | move`: copies of the embedded store and of what belongs to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import click
import msgspec

from receiver.backup.backup import Report, back_up, spans_of
from receiver.backup.restore import restore as restore_into
from receiver.backup.snapshot import Snapshot, delete_snapshot, take_snapshot
from receiver.cli.receiver.store_move import move
from receiver.cli.shell.api_client import query_receiver, store_of
from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import config_option, data_dir_of, data_option, loaded_with
from receiver.config.checks import require_engine
from receiver.durable.files import lock_held, make_directories
from receiver.engine.store import Store
from receiver.errors import CommandFailed, OperatorError, Unavailable
from receiver.settings import Settings
from receiver.sizes import counted, size_text
from receiver.supervisor.state import running_receiver

REPORT_EVERY_S = 1.0
directory_argument = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.group(cls=CommandGroup)
def store() -> None:
    """Back up, restore or move the embedded store."""


store.add_command(move)


@store.command(
    epilog=examples(
        "trace-drain store backup /mnt/backups/traces",
        "trace-drain store backup /mnt/backups/traces --config /etc/trace-drain.toml",
    )
)
@directory_argument
@config_option
@data_option
def backup(directory: Path, config: str | None, data: str | None) -> None:
    """Copy the embedded store into DIR, beside a running receiver or without one.

    Copies what the last backup in DIR lacks, then replaces that backup. An interrupted backup changes
    nothing. `docs/backup.md` lists what is in a backup, and which secrets.
    """
    settings = _embedded(config, data)
    data_dir = data_dir_of(settings)
    with lock_held(data_dir / "backup.lock", f"another backup of '{data_dir}' runs; expected it to end"):
        # A killed command leaves its snapshot.
        delete_snapshot(data_dir)
        try:
            made = back_up(data_dir, _snapshot(settings, data_dir), directory, _progress())
        finally:
            delete_snapshot(data_dir)
    spans = spans_of(made.manifest)
    click.echo(
        f"{counted(sum(spans.values()), 'span')} of {counted(len(spans), 'day')}: "
        f"{size_text(made.manifest.bytes_total)} in {counted(len(made.manifest.files), 'file')}; "
        f"copied {size_text(made.bytes_copied)} in {counted(made.files_copied, 'file')}, "
        f"with new parts of {counted(made.days_changed, 'day')}"
    )


@store.command(epilog=examples("trace-drain store restore /mnt/backups/traces --data data"))
@directory_argument
@config_option
@data_option
def restore(directory: Path, config: str | None, data: str | None) -> None:
    """Write the backup in DIR into a data directory without a store.

    Checks every file and counts the rows before anything in the data directory changes. After an
    interruption, run it again. The receiver must not run.
    """
    settings = _embedded(config, data)
    require_engine(settings)
    data_dir = Path(settings.data_dir)
    make_directories(data_dir)
    opening = import_module("receiver.engine.opening")

    @contextmanager
    def open_store(path: Path) -> Iterator[Store]:
        opened: Store = opening.open_embedded(path, settings, disk_free_min=lambda: 0)
        try:
            yield opened
        finally:
            opened.close()

    # The lock of the supervisor, so that no receiver starts meanwhile.
    running = f"a receiver runs on '{data_dir}'; expected it to be stopped"
    with lock_held(data_dir / "lock", running), opening.claimed(data_dir):
        manifest = restore_into(directory, settings, open_store, _progress())
    spans = spans_of(manifest)
    click.echo(
        f"{counted(sum(spans.values()), 'span')} of {counted(len(spans), 'day')}, as of {manifest.taken_at}: "
        f"every checksum and row count agrees"
    )


def _embedded(config: str | None, data: str | None) -> Settings:
    settings = loaded_with(config, data).settings
    if settings.store.url != "embedded":
        raise OperatorError(
            "the store is a ClickHouse server, which backs up itself by the statement BACKUP; "
            "docs/backup.md has it; expected store.url = 'embedded'"
        )
    return settings


def _snapshot(settings: Settings, data_dir: Path) -> Snapshot:
    """Take a snapshot: in the running receiver, which has the engine open, or here."""
    state = running_receiver(settings)
    if state is not None:
        rows = query_receiver(settings, state, "/api/v1/store/snapshot", {}, method="POST", document=Snapshot)
        return msgspec.convert(next(rows), Snapshot)
    with store_of(settings) as store:
        try:
            return take_snapshot(store, data_dir, settings.store.database, time.time())
        except Unavailable as error:
            raise CommandFailed(str(error)) from error


def _progress() -> Report:
    printed_at_s = time.monotonic()

    def report(bytes_copied: int, bytes_total: int) -> None:
        nonlocal printed_at_s
        if time.monotonic() - printed_at_s >= REPORT_EVERY_S:
            printed_at_s = time.monotonic()
            click.echo(f"copied {size_text(bytes_copied)} of {size_text(bytes_total)}", err=True)

    return report
