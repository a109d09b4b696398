"""`trace-drain journal ls | verify | inspect`: reads a journal without changing it, even while in use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import msgspec
from msgspec.structs import asdict

from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import config_option, data_dir_of, data_option, loaded_with
from receiver.journal.frame import answers_of
from receiver.journal.listing import find_segment, list_segments
from receiver.sizes import counted
from receiver.time_range import instant_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.journal.frame import Answered, Tally
    from receiver.journal.listing import SegmentInfo
    from receiver.transcode import Scan

ROW = "{:<28} {:<10} {:>12} {:>8} {:>10} {:>9}"


@click.group(cls=CommandGroup)
def journal() -> None:
    """List, verify and inspect the segments that are on disk and not stored yet."""


def _root(config: str | None, data: str | None) -> Path:
    return data_dir_of(loaded_with(config, data).settings) / "journal"


@journal.command()
@config_option
@data_option
def ls(config: str | None, data: str | None) -> None:
    """List every segment with its state, size, records, rows and age."""
    root = _root(config, data)
    found = list(list_segments(root))
    if not found:
        click.echo("no segments", err=True)
        return
    click.echo(ROW.format("SEGMENT", "STATE", "BYTES", "RECORDS", "ROWS", "AGE"))
    for seen in found:
        # The writer of a running receiver deletes segments that it has stored.
        with suppress(FileNotFoundError):
            claim = seen.footer_counts()
            age = f"{seen.age_s:.1f} s"
            click.echo(ROW.format(str(seen.id), seen.state, seen.bytes, claim.records, claim.rows, age))


@journal.command()
@config_option
@data_option
def verify(config: str | None, data: str | None) -> None:
    """Check every checksum. If an acknowledged record cannot be read, name it and exit with 1."""
    segments = records = lost = 0
    for seen in list_segments(_root(config, data)):
        # Deleted meanwhile, because it was stored: nothing is lost.
        with suppress(FileNotFoundError):
            scan = seen.read()
            segments += 1
            records += len(scan.records)
            for damage in seen.damage(scan):
                lost += 1
                click.echo(f"{damage} ({seen.path})", err=True)
    counts = ((segments, "segment"), (records, "complete record"), (lost, "damaged range"))
    click.echo(", ".join(counted(count, noun) for count, noun in counts))
    if lost:
        raise SystemExit(1)


@journal.command(
    epilog=examples(
        "trace-drain journal inspect 0c9cd5a2f1a54b3e-0000000000",
        "trace-drain journal inspect --format json data/journal/0c9cd5a2f1a54b3e/0000000000.native.lz4",
    )
)
@click.argument("segment")
@config_option
@data_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def inspect(segment: str, config: str | None, data: str | None, form: Literal["text", "json"]) -> None:
    """Print the records of a SEGMENT (a path, or a name that `journal ls` prints) and their deliveries.

    If an acknowledged record in it cannot be read, the exit code is 1.
    """
    seen = find_segment(segment, lambda: _root(config, data))
    scan = seen.read()
    click.echo(_as_json(seen, scan) if form == "json" else "\n".join(_as_text(seen, scan)))
    if seen.damage(scan):
        raise SystemExit(1)


def _as_json(seen: SegmentInfo, scan: Scan) -> str:
    listing = {
        "segment": str(seen.id),
        "path": str(seen.path),
        "state": seen.state,
        "bytes": seen.bytes,
        "records": [
            {
                "offset": record.offset,
                "bytes": record.length,
                "rows": record.rows,
                "deliveries": [_described(delivery) for delivery in answers_of(record)],
            }
            for record in scan.records
        ],
        "damage": [
            {"offset": damage.offset, "bytes": damage.length_bytes, "reason": damage.reason}
            for damage in seen.damage(scan)
        ],
    }
    return msgspec.json.encode(listing).decode()


def _described(delivery: Answered) -> dict[str, object]:
    return asdict(delivery) | {
        "digest": delivery.digest.hex(),
        "received_at": _instant(delivery),
        "tallies": [_counted(tally) for tally in delivery.tallies],
    }


def _counted(tally: Tally) -> dict[str, str | int]:
    """Return span counts by outcome. `stored` is shown as `kept`: the rows are not in the store yet."""
    counts = asdict(tally)
    return {"kept" if what == "stored" else what: count for what, count in counts.items()}


def _as_text(seen: SegmentInfo, scan: Scan) -> Iterator[str]:
    yield f"segment {seen.id}, {seen.state}, {seen.bytes} bytes, {seen.path}"
    for record in scan.records:
        yield f"record at byte {record.offset}: {record.length} bytes, {counted(record.rows, 'row')}"
        for delivery in answers_of(record):
            yield (
                f"  delivery {delivery.digest.hex()} from drain '{delivery.drain}' at {_instant(delivery)}: "
                f"{counted(delivery.rows, 'row')}"
            )
            for tally in delivery.tallies:
                counts = ", ".join(
                    f"{count} {what}" for what, count in _counted(tally).items() if what != "project"
                )
                yield f"    project '{tally.project}': {counts}"
    yield from (f"damage: {damage}" for damage in seen.damage(scan))


def _instant(delivery: Answered) -> str:
    return instant_text(delivery.received_at_ns / 1e9, "milliseconds")
