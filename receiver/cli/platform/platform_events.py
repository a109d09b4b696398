"""`trace-drain platform events DEPLOYMENT`: the events of a deployment, also as they happen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any, Literal

import click
import msgspec

from receiver.cli.platform.platform_options import Options, platform_client, platform_options
from receiver.cli.shell.group import examples
from receiver.cli.shell.text_width import cut_to_width, padded
from receiver.errors import OperatorError
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.errors import PlatformError
from receiver.platform.client.event import Event
from receiver.platform.client.events import EventQuery, follow
from receiver.platform.client.events import events as read_events
from receiver.printable import harmless_text
from receiver.time_range import instant_text, parse_instant, parse_seconds

TYPE_COLUMNS = 16
DEFAULT_LIMIT_MIN = 100
"""Number of events at which the platform may have cut a response without `--limit`."""


@click.command(
    epilog=examples(
        "trace-drain platform events dpl_1",
        "trace-drain platform events dpl_1 --follow",
        "trace-drain platform events shop.example.com --since 1h --status 5xx --format jsonl",
    )
)
@click.argument("deployment")
@click.option("--follow", "is_followed", is_flag=True, help="Print events as they happen, until Ctrl-C.")
@click.option("--direction", type=click.Choice(["forward", "backward"]), help="Order by time.")
@click.option("--since", metavar="TIME", help="How far back, 15m, 24h, 7d, or an instant: 2026-01-31T10:00Z.")
@click.option("--until", metavar="TIME", help="Only events before this age or instant.")
@click.option("--status", "status_code", metavar="STATUS", help="Only requests with this status: 503, 5xx.")
@click.option("--build", metavar="ID", help="Only events of this build: bld_1.")
@click.option("--limit", type=click.IntRange(min=-1), metavar="N", help="At most N events; -1: all.")
@click.option("--delimiter/--no-delimiter", default=None, help="The parameter `delimiter` of the platform.")
@click.option("--builds/--no-builds", default=None, help="The parameter `builds` of the platform.")
@platform_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl"]),
    default="table",
    help="jsonl: each event as the platform sent it, one JSON object a line.",
)
def events(deployment: str, *, is_followed: bool, form: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Print the events of a deployment: its build, its requests and its state.

    DEPLOYMENT is an id (dpl_1) or a host name. With --follow, an interrupted connection continues after the
    last event; the command ends with the deployment's last event.
    """
    query, client = _query(options, time.time()), platform_client(options)
    run = _print_followed if is_followed else _print_all
    asyncio.run(run(client, deployment, query, form))


async def _print_all(client: PlatformClient, deployment: str, query: EventQuery, form: str) -> None:
    async with client:
        received = await read_events(client, deployment, query)
        is_cut = query.limit is None and await _has_more(client, deployment, query, received)
    for event in received:
        _print(event, form)
    if not received:
        click.echo("no events", err=True)
    if is_cut:
        click.echo(
            f"the platform sent only {len(received)} of the events; --limit -1 prints all, "
            "--direction backward the newest first",
            err=True,
        )


async def _has_more(
    client: PlatformClient, deployment: str, query: EventQuery, received: list[Event]
) -> bool:
    """Return whether the platform has events after those of a response, whose number it limited."""
    if len(received) < DEFAULT_LIMIT_MIN:
        return False
    times = [event.created for event in received]
    if query.direction == "backward":
        rest = msgspec.structs.replace(query, limit=1, until=int(min(times)) - 1)
    else:
        rest = msgspec.structs.replace(query, limit=1, since=int(max(times)) + 1)
    try:
        more = await read_events(client, deployment, rest)
    # The events that were read are printed anyway.
    except PlatformError:
        return False
    # The platform may ignore the time.
    return any(not min(times) <= event.created <= max(times) for event in more)


async def _print_followed(client: PlatformClient, deployment: str, query: EventQuery, form: str) -> None:
    notes = _Notes()
    async with client, aclosing(follow(client, deployment, query, on_interruption=notes.show)) as stream:
        async for event in stream:
            notes.forget()
            _print(event, form)


class _Notes:
    """Notes on standard error about interruptions, each once in a row."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, failure: PlatformError) -> None:
        """Print the note unless it was the last one."""
        note = f"{failure}; connecting again"
        if note != self._last:
            click.echo(harmless_text(note), err=True)
        self._last = note

    def forget(self) -> None:
        """Print the next note also if it equals the last one."""
        self._last = ""


def _query(options: Options, now_s: float) -> EventQuery:
    return EventQuery(
        direction=options["direction"],
        limit=options["limit"],
        since=_milliseconds(options["since"], "since", now_s),
        until=_milliseconds(options["until"], "until", now_s),
        status_code=options["status_code"],
        build=options["build"],
        delimiter=options["delimiter"],
        builds=options["builds"],
    )


def _milliseconds(text: str | None, name: Literal["since", "until"], now_s: float) -> int | None:
    """Return the milliseconds since 1970 of an age or an instant."""
    if text is None:
        return None
    instant_s, age_s = parse_instant(text), parse_seconds(text)
    if age_s is not None:
        instant_s = now_s - age_s
    if instant_s is None or instant_s < 0:
        raise OperatorError(
            f"--{name} is neither an age nor an instant since 1970; expected a number and s, m, h or d, like "
            "15m, or an instant, like 2026-01-31T10:00Z"
        )
    return round(instant_s * 1_000)


def _print(event: Event, form: str) -> None:
    # ASCII only: many readers take U+2028 and similar characters for the end of a line.
    lines = [json.dumps(event.raw, separators=(",", ":"))] if form == "jsonl" else _lines(event)
    click.echo("\n".join(lines))


def _lines(event: Event) -> Iterator[str]:
    """Yield the lines of an event. The further lines are indented, so that none looks like an event."""
    at = instant_text(event.created / 1_000, "milliseconds", sep=" ", zone="")
    head = f"{at}  {padded(cut_to_width(harmless_text(event.type), TYPE_COLUMNS), TYPE_COLUMNS)}  "
    for line in _text(event).rstrip("\n").split("\n"):
        yield f"{head}{harmless_text(line)}".rstrip()
        head = " " * len(head)


def _text(event: Event) -> str:
    payload, proxy = event.payload, event.payload.proxy
    if payload.text or proxy is None:
        info = payload.info
        return payload.text or " ".join(filter(None, (info.ready_state, info.step, info.name, info.path)))
    status = proxy.status_code or payload.status_code or ""
    return f"{proxy.method} {proxy.host}{proxy.path} {status}".strip()
