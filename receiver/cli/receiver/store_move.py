"""`trace-drain store move --to URL`: copies the embedded store to a server or cluster.

The receiver may run meanwhile: while it has the embedded store open, its API reads it. Otherwise the command
opens it itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from receiver import transcode
from receiver.cli.shell.api_client import download, query_receiver, store_of
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import FILE_PATH, cluster_option, config_option, data_dir_of, data_option
from receiver.config.addresses import StoreUrl, parse_store_url
from receiver.config.load import Sources
from receiver.console.api.lines import ARROW
from receiver.durable.files import DISK, open_or_create
from receiver.engine import schema
from receiver.engine.copying import Read
from receiver.engine.opening import open_server, receiver_name
from receiver.errors import CommandFailed, OperatorError, StoreTrouble
from receiver.move.ends import MoveSource, OpenStore, unfinished_segments
from receiver.move.mover import Moved, Mover
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.supervisor.state import ReceiverState, running_receiver

PATH: Final = "/api/v1/store/read"


@click.command(
    epilog=examples(
        "trace-drain store move --to http://trace_drain@clickhouse:8123/otel --password-file pw",
        "trace-drain store move --to http://clickhouse:8123/otel --cluster production",
    )
)
@config_option
@data_option
@click.option("--to", required=True, metavar="URL", help="The server: http(s)://user@host:port/database.")
@click.option(
    "--password-file", type=FILE_PATH, metavar="FILE", help="File with the password. [store.password]"
)
@cluster_option
def move(
    config: str | None, data: str | None, *, to: str, password_file: str | None, cluster: str | None
) -> None:
    """Copy the embedded store to a ClickHouse server or cluster, and verify what is there.

    The receiver may run meanwhile. A command that was interrupted continues when it is run again. Then set
    store.url to the same URL, restart the receiver, and run the command again for the rest.
    """
    url = _server_url(to)
    flags = {
        "--to": ("store.url", to),
        "--data": ("data_dir", data),
        "--password-file": ("store.password_file", password_file),
        "--cluster": ("store.cluster", cluster),
    }
    given = {flag: (key, value) for flag, (key, value) in flags.items() if value is not None}
    # As they will be once the receiver stores into the server.
    settings = Sources(config, dict(os.environ), given).load().settings
    data_dir = data_dir_of(settings)
    with ExitStack() as resources:
        resources.enter_context(only_move(data_dir))
        state = running_receiver(settings)
        source: MoveSource
        if state is not None and _has_embedded_store(settings, state):
            source = ReceiverSource(settings, state)
        else:
            opening = store_of(_with_embedded_store(settings), is_in_use=state is not None)
            source = OpenStore(resources.enter_context(opening))
        moved = _move(settings, url, source, data_dir)
    for line in _result(moved, url, settings, is_open=isinstance(source, ReceiverSource)):
        click.echo(line)


def _server_url(to: str) -> StoreUrl:
    try:
        url = parse_store_url(to)
    except OperatorError as error:
        raise OperatorError(f"--to {error}") from error
    if url is None:
        raise OperatorError("--to is the embedded store; expected http(s)://user@host:port/database")
    if url.password:
        raise OperatorError("--to contains a password, which others can read; expected --password-file FILE")
    return url


@contextmanager
def only_move(data_dir: Path) -> Iterator[None]:
    """Hold a lock, because two moves at once could both copy a segment."""
    fd = open_or_create(data_dir / "move.lock")
    try:
        if not DISK.lock(fd):
            raise CommandFailed(f"another `trace-drain store move` runs on '{data_dir}'")
        yield
    finally:
        DISK.close(fd)


def _has_embedded_store(settings: Settings, state: ReceiverState) -> bool:
    """Return whether the receiver has the embedded store open. Its settings may have changed since."""
    document: dict[str, Any] = next(
        query_receiver(settings, state, "/api/v1/schema", {}, document=schema.Status)
    )
    return msgspec.convert(document, schema.Status).engine.embedded


def _with_embedded_store(settings: Settings) -> Settings:
    store = msgspec.structs.replace(settings.store, url="embedded", password="")
    return msgspec.structs.replace(settings, store=store)


class ReceiverSource:
    """The embedded store of a running receiver."""

    def __init__(self, settings: Settings, state: ReceiverState) -> None:
        self._settings = settings
        self._state = state

    def lines(self, read: Read) -> list[dict[str, Any]]:
        body = msgspec.json.encode(read)
        return list(query_receiver(self._settings, self._state, PATH, {}, method="POST", body=body))

    def arrow(self, read: Read) -> Iterator[bytes]:
        return download(self._settings, self._state, PATH, {}, ARROW, body=msgspec.json.encode(read))


def _move(settings: Settings, url: StoreUrl, source: MoveSource, data_dir: Path) -> Moved:
    try:
        with closing(open_server(url, settings)) as target:
            wanted, layout = schema.wanted(settings), schema.layout_of(settings)
            for name in schema.apply(target, transcode.SCHEMAS, *wanted, layout=layout):
                click.echo(f"applied {name}", err=True)
            return Mover(
                source,
                target,
                lambda: unfinished_segments(data_dir),
                f"trace-drain-move-{receiver_name(settings)}",
                lambda line: click.echo(line, err=True),
                settings.store.retention_days,
                settings.platform.events.retention_days,
            ).run()
    except StoreTrouble as trouble:
        raise CommandFailed(f"the server: {trouble.label}; run the command again to continue") from trouble


def _result(moved: Moved, url: StoreUrl, settings: Settings, *, is_open: bool) -> Iterator[str]:
    place, cluster = url.without_password(), settings.store.cluster
    yield (
        f"{counted(moved.copied, 'span')} copied; {counted(moved.equal, 'span')} of the embedded store are "
        f"in {place}, each once"
    )
    if moved.unfinished:
        yield (
            f"{counted(moved.unfinished, 'span')} of segments in the journal are left to the writer; run the "
            "command again when it has stored them"
        )
    if is_open:
        also = f' and store.cluster = "{cluster}"' if cluster else ""
        yield f'now set store.url = "{place}"{also}, restart the receiver, and run the command again'
    elif not moved.unfinished:
        store = data_dir_of(settings) / "store"
        yield f"if the receiver's store.url is {place}, '{store}' may be deleted"
