"""`trace-drain export FILTER -o FILE`: every stored column of all spans that match, in a file.

Invariant: FILE appears when it is complete and on disk; until then its content is in FILE.partial.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Final

import click

from receiver.cli.console.filter_command import FilterCommand, filter_words
from receiver.cli.console.questions import empty_note, filter_errors_shown
from receiver.cli.shell.api_client import download, parsed_rows, query_receiver, receiver_or_store
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import FILE_PATH, SINCE, config_option, data_option, loaded_with
from receiver.console.queries.export import (
    CONTENT_TYPES,
    FORMATS,
    ExportFormat,
    formatted,
    parse_export,
    slices,
)
from receiver.console.queries.export import export as stored
from receiver.console.queries.traces.trace_model import Row
from receiver.durable.files import DISK, open_or_create, unlink_if_exists, write_all
from receiver.engine.store import Store
from receiver.errors import CommandFailed, OperatorError
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.supervisor.state import ReceiverState

PATH: Final = "/api/v1/export"
STANDARD_OUTPUT: Final = "-"
BLOCK_SPANS = 5_000
"""Number of spans that are formatted and written together."""


@click.command(
    cls=FilterCommand,
    epilog=examples(
        "trace-drain export 'service=web status=error' --since 24h -o errors.csv",
        "trace-drain export --since 7d -o spans.parquet",
        "trace-drain export 'project=prj_1' --since 24h --format otlp -o - | gzip > spans.jsonl.gz",
    ),
)
@filter_words()
@config_option
@data_option
@click.option("--since", **SINCE)
@click.option("--until", default="", metavar="TIME", help="Only spans before this age or instant. [now]")
@click.option(
    "--format",
    "form",
    type=click.Choice([str(form) for form in FORMATS]),
    help="otlp: lines of OTLP JSON. [the ending of FILE, or else jsonl]",
)
@click.option(
    "-o", "output", type=FILE_PATH, required=True, metavar="FILE", help="A new file; - for standard output."
)
def export(  # noqa: PLR0913 - one parameter an option
    words: tuple[str, ...],
    *,
    config: str | None,
    data: str | None,
    since: str,
    until: str,
    form: str | None,
    output: str,
) -> None:
    """Write every stored column of all spans that match FILTER into a file, oldest first.

    FILTER is that of `search`. There is no limit on the number of spans.
    """
    settings, text = loaded_with(config, data).settings, " ".join(words)
    query = {"filter": text, "since": since, "until": until, "format": form or _format_of(output)}
    with filter_errors_shown(text):
        # Before anything is opened, so that a wrong parameter is reported at once.
        parse_export(query).range.bounds_ns(time.time())
        content = _Content(settings, query)
        if output == STANDARD_OUTPUT:
            _write_to_standard_output(content)
        else:
            _write_to_file(content, Path(output))
    if content.is_empty:
        click.echo(empty_note(since, until), err=True)


def _format_of(output: str) -> str:
    ending = Path(output).suffix.removeprefix(".")
    return ending if ending in FORMATS else ExportFormat.JSONL


class _Content:
    """Content of the file. The attributes describe the pieces that were read."""

    def __init__(self, settings: Settings, query: Mapping[str, str]) -> None:
        self._settings = settings
        self._query = query
        self._form = ExportFormat(query["format"])
        self._size_bytes = 0
        self._span_count = 0
        self._last = ""
        """Start of the last span."""

    @property
    def is_empty(self) -> bool:
        """Return whether it is known that no span matches."""
        return self._form != ExportFormat.PARQUET and not self._span_count

    @property
    def size(self) -> str:
        """Return the number of spans, or the size of a Parquet file, whose spans are not counted."""
        if self._form == ExportFormat.PARQUET:
            return f"{self._size_bytes} bytes"
        return counted(self._span_count, "span")

    @property
    def progress(self) -> str:
        if self._form == ExportFormat.PARQUET:
            return f"{self._size_bytes / 1e6:.1f} MB"
        return f"{self.size}, up to {self._last[:19]}"

    def pieces(self) -> Iterator[bytes]:
        if self._form == ExportFormat.PARQUET:
            for piece in self._stored():
                self._size_bytes += len(piece)
                yield piece
            return
        rows = self._rows()
        while block := list(islice(rows, BLOCK_SPANS)):
            content = formatted(block, self._form, has_head=not self._span_count)
            self._span_count += len(block)
            self._last = block[-1]["Timestamp"]
            yield content
        if not self._span_count and self._form == ExportFormat.CSV:
            # Only the line of names: spans may have arrived since the rows were read.
            yield b"".join(self._stored()).splitlines(keepends=True)[0]

    def _rows(self) -> Iterator[Row]:
        query = {**self._query, "format": ExportFormat.JSONL}

        def of_receiver(state: ReceiverState) -> Iterator[Row]:
            return query_receiver(self._settings, state, PATH, query)

        def of_store(store: Store) -> Iterator[Row]:
            return chain.from_iterable(map(parsed_rows, slices(store, parse_export(query), time.time())))

        return receiver_or_store(self._settings, of_receiver, of_store)

    def _stored(self) -> Iterator[bytes]:
        """Yield the content as the receiver sends it."""

        def of_receiver(state: ReceiverState) -> Iterator[bytes]:
            return download(self._settings, state, PATH, self._query, CONTENT_TYPES[self._form])

        def of_store(store: Store) -> Iterator[bytes]:
            return stored(store, parse_export(self._query), time.time())

        return receiver_or_store(self._settings, of_receiver, of_store)


def _write_to_standard_output(content: _Content) -> None:
    if sys.stdout.isatty():
        raise OperatorError("standard output is a terminal; expected -o FILE, or a pipe")
    for piece in content.pieces():
        sys.stdout.buffer.write(piece)


def _write_to_file(content: _Content, path: Path) -> None:
    try:
        with _new_file(path) as write:
            for piece in content.pieces():
                write(piece)
                _show_progress(content.progress)
    finally:
        _show_progress("")
    click.echo(f"{path}: {content.size}", err=True)


@contextmanager
def _new_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that appends to FILE.partial, which gets its name at the end of the block."""
    if not path.parent.is_dir():
        raise OperatorError(f"no directory '{path.parent}'; expected -o FILE in a directory that exists")
    if DISK.size_bytes(path) is not None:
        raise OperatorError(f"'{path}' exists; expected the name of a new file")
    partial = path.with_name(f"{path.name}.partial")
    fd, size_bytes = open_or_create(partial), 0

    def append(content: bytes) -> None:
        nonlocal size_bytes
        write_all(DISK, fd, content, size_bytes)
        size_bytes += len(content)

    try:
        # Two exports with the same file would mix their spans. The kernel frees the lock of a killed process.
        if not DISK.lock(fd):
            raise CommandFailed(f"another process writes '{partial}'")
        try:
            # A killed process leaves its spans.
            DISK.truncate(fd, 0)
            yield append
            # Synced before the rename, so that FILE never has its name without its content.
            DISK.sync(fd)
            DISK.rename(partial, path)
        except BaseException:
            # Before the close, which frees the lock: afterwards the file may be that of another process.
            unlink_if_exists(partial)
            raise
        DISK.sync_directory(path.parent)
    finally:
        DISK.close(fd)


def _show_progress(text: str) -> None:
    """Replace the line of progress on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
