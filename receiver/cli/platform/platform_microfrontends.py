"""`trace-drain platform microfrontends update GROUP`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from receiver.cli.platform.platform_options import platform_client, platform_options
from receiver.cli.shell.group import CommandGroup, examples
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.microfrontends import update_group
from receiver.printable import harmless_text


@click.group(cls=CommandGroup)
def microfrontends() -> None:
    """Change microfrontends groups."""


@microfrontends.command(
    epilog=examples(
        "trace-drain platform microfrontends update mfe_1 --name shop",
        "trace-drain platform microfrontends update mfe_1 --fallback-environment PRODUCTION --team team_1",
    )
)
@click.argument("group")
@click.option("--name", metavar="NAME", help="New name; the slug changes with it.")
@click.option(
    "--fallback-environment",
    metavar="ENVIRONMENT",
    help="SAME_ENV, PRODUCTION, or the slug of a custom environment of the default application.",
)
@platform_options
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def update(
    group: str,
    *,
    name: str | None,
    fallback_environment: str | None,
    form: str,
    **options: Any,  # noqa: ANN401 - click's values
) -> None:
    """Change the name or the fallback environment of a microfrontends group, and print the result."""
    fields = asyncio.run(_updated(platform_client(options), group, name, fallback_environment))
    if form == "json":
        click.echo(json.dumps(fields))
        return
    for key, value in fields.items():
        click.echo(harmless_text(f"{key:<20} {value}"))


async def _updated(
    client: PlatformClient, group: str, name: str | None, fallback_environment: str | None
) -> dict[str, object]:
    async with client:
        _, fields = await update_group(client, group, name=name, fallback_environment=fallback_environment)
    return fields
