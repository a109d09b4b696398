"""`trace-drain export FILTER -o FILE`: every stored column of all spans that match, in a file.

An incomplete export is in FILE.partial, and FILE.partial.state says how much of it is complete. The same
command then continues there. FILE appears when it is complete and on disk.

Invariant: FILE.partial up to the size in its state has every span that started before the time in its state.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click
import msgspec

from receiver.cli.console.export_file import PartialFile, State
from receiver.cli.console.filter_command import FilterCommand, filter_words
from receiver.cli.console.questions import empty_note, filter_errors_shown
from receiver.cli.shell.api_client import download, parsed_rows, query_receiver, running_receiver, store_of
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import FILE_PATH, config_option, data_option, loaded_with
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
from receiver.errors import CommandFailed, OperatorError, Refused
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.time_range import SINCE_DEFAULT

PATH: Final = "/api/v1/export"
STANDARD_OUTPUT: Final = "-"
BLOCK_ROWS = 5_000
"""Spans that are written and synced together, at least: an interrupted export repeats at most as many."""
INSTANT_CHARS = len("2026-01-31 10:00:00.123456")
"""Length of a time to the microsecond, the precision of --since."""


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
@click.option(
    "--since",
    default=SINCE_DEFAULT,
    show_default=True,
    metavar="TIME",
    help="How far back, 15m, 24h, 7d, or an instant: 2026-01-31T10:00Z.",
)
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

    FILTER is that of `search`. There is no limit on the number of spans. Run the same command again to
    continue an export that was interrupted.
    """
    settings, text = loaded_with(config, data).settings, " ".join(words)
    asked = {"filter": text, "since": since, "until": until, "format": form or _format_of(output)}
    with filter_errors_shown(text):
        query = _with_instants(asked)
        if output == STANDARD_OUTPUT:
            is_empty = _to_standard_output(settings, query)
        elif query["format"] == ExportFormat.PARQUET:
            is_empty = _to_parquet_file(settings, query, Path(output))
        else:
            is_empty = _to_file(settings, asked, query, Path(output))
    if is_empty:
        click.echo(empty_note(since, until), err=True)


def _format_of(output: str) -> str:
    ending = Path(output).suffix.removeprefix(".")
    return ending if ending in FORMATS else ExportFormat.JSONL


def _with_instants(asked: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters with a fixed time range, which a continued export keeps."""
    try:
        from_ns, to_ns = parse_export(asked).range.bounds_ns(time.time())
    except Refused as error:
        raise OperatorError(str(error)) from error
    return {**asked, "since": _instant_text(from_ns), "until": _instant_text(to_ns)}


def _instant_text(at_ns: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1_000)).isoformat()


def _to_standard_output(settings: Settings, query: Mapping[str, str]) -> bool:
    """Write to a pipe or a file. Returns whether it is known that no span matches."""
    if sys.stdout.isatty():
        raise OperatorError("standard output is a terminal; expected -o FILE, or a pipe")
    out = sys.stdout.buffer
    if query["format"] == ExportFormat.PARQUET:
        for piece in _pieces(settings, query):
            out.write(piece)
        return False
    is_empty = True
    for block in blocks(_rows(settings, query)):
        out.write(formatted(block, ExportFormat(query["format"]), has_head=is_empty))
        is_empty = False
    if is_empty:
        out.write(_head(settings, query))
    return is_empty


def _to_parquet_file(settings: Settings, query: Mapping[str, str], path: Path) -> bool:
    with PartialFile(path) as file:
        file.begin()
        for piece in _pieces(settings, query):
            file.write(piece)
            _show_progress(f"{file.size_bytes / 1e6:.1f} MB")
        file.finish()
    _show_progress("")
    click.echo(f"{path}: {file.size_bytes} bytes", err=True)
    return False


def _to_file(settings: Settings, asked: Mapping[str, str], query: dict[str, str], path: Path) -> bool:
    """Write a file block by block, each with a new state, so that the export can continue.

    Returns whether no span matches.
    """
    with PartialFile(path) as file:
        state = file.resume(dict(asked))
        if state is None:
            file.begin()
            state = State(asked=dict(asked), since=query["since"], until=query["until"])
        else:
            click.echo(f"continuing after {counted(state.spans, 'span')}", err=True)
        # The last block may have reached the end of the range just before the interruption, and an empty
        # range is refused.
        is_over = datetime.fromisoformat(state.since) >= datetime.fromisoformat(state.until)
        rows = () if is_over else _rows(settings, {**query, "since": state.since, "until": state.until})
        try:
            for block in blocks(rows):
                file.write(formatted(block, ExportFormat(query["format"]), has_head=not state.spans))
                state = _advanced(state, block, file.size_bytes)
                file.save(state)
                _show_progress(f"{counted(state.spans, 'span')}, up to {block[-1]['Timestamp'][:19]}")
        # The note comes before the error, and the file keeps the blocks that were saved.
        except (CommandFailed, KeyboardInterrupt):
            _show_progress("")
            click.echo(
                f"{counted(state.spans, 'span')} exported; the same command continues after them", err=True
            )
            raise
        if not state.spans:
            file.write(_head(settings, query))
        file.finish()
    _show_progress("")
    click.echo(f"{path}: {counted(state.spans, 'span')}", err=True)
    return not state.spans


def _advanced(state: State, block: list[Row], size_bytes: int) -> State:
    return msgspec.structs.replace(
        state, spans=state.spans + len(block), since=after(block[-1]), size_bytes=size_bytes
    )


def _rows(settings: Settings, query: Mapping[str, str]) -> Iterator[Row]:
    """Yield the spans, from the running receiver or from the store itself."""
    # Always as rows, because their times decide where an interrupted export continues.
    query = {**query, "format": ExportFormat.JSONL}
    state = running_receiver(settings)
    if state is not None:
        yield from query_receiver(settings, state, PATH, query)
        return
    with store_of(settings) as store:
        for lines in slices(store, parse_export(query), time.time()):
            yield from parsed_rows(lines)


def _head(settings: Settings, query: Mapping[str, str]) -> bytes:
    """Return the line of names of a CSV export without spans; other formats have none."""
    if query["format"] != ExportFormat.CSV:
        return b""
    # Only the first line: spans may have arrived since the rows were read.
    return b"".join(_pieces(settings, query)).splitlines(keepends=True)[0]


def _pieces(settings: Settings, query: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the export in its format, from the running receiver or from the store itself."""
    state = running_receiver(settings)
    if state is not None:
        yield from download(settings, state, PATH, query, CONTENT_TYPES[ExportFormat(query["format"])])
        return
    with store_of(settings) as store:
        yield from stored(store, parse_export(query), time.time())


def blocks(rows: Iterable[Row], rows_min: int = BLOCK_ROWS) -> Iterator[list[Row]]:
    """Group ordered spans so that all spans of a microsecond are in the same block."""
    block: list[Row] = []
    for row in rows:
        if len(block) >= rows_min and _microsecond(row) != _microsecond(block[-1]):
            yield block
            block = []
        block.append(row)
    if block:
        yield block


def after(row: Row) -> str:
    """Return the first microsecond after the start of a span, as --since accepts it."""
    instant = datetime.fromisoformat(_microsecond(row)).replace(tzinfo=UTC)
    return (instant + timedelta(microseconds=1)).isoformat()


def _microsecond(row: Row) -> str:
    return str(row["Timestamp"])[:INSTANT_CHARS]


def _show_progress(text: str) -> None:
    """Replace the line of progress on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
